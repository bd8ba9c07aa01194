{{/*
The pod: the same for a server with the embedded store and for one of several. Its volumes hold the secrets; the group that may read
them is the server's, and their owner is root. Weir accepts key files with a readable group only if root owns them.
*/}}
{{- define "weir.pod" -}}
{{- /* A server alone does not wait: nobody takes over, and it answers nobody after it was removed from the Service. */ -}}
{{- $image := print .Values.image.repository ":" (.Values.image.tag | default .Chart.AppVersion) -}}
{{- with .Values.image.digest -}}{{- $image = print $image "@" . -}}{{- end -}}
{{- $pause := include "weir.shared" . | empty | ternary 0 8 -}}
metadata:
  labels:
    {{- /* No versions: they would restart the pods at each upgrade of the chart. */}}
    {{- include "weir.selector" . | nindent 4 }}
    app.kubernetes.io/part-of: weir
  annotations:
    # A changed configuration restarts the pods.
    weir/configuration: {{ include "weir.configuration" . | sha256sum }}
    {{- if not .Values.serviceMonitor.enabled }}
    prometheus.io/scrape: "true"
    prometheus.io/port: "8081"
    {{- end }}
spec:
  serviceAccountName: {{ include "weir.fullname" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  # preStop, drain_deadline_s, and a reserve.
  terminationGracePeriodSeconds: {{ add $pause (int64 (.Values.config.drain_deadline_s | default 20)) 12 }}
  {{- if include "weir.shared" . }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "weir.selector" . | nindent 10 }}
  {{- end }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    # This group may read the keys (mode 0440, owner root). Weir accepts that only if root owns the file.
    fsGroup: 65532
    {{- if not (include "weir.shared" .) }}
    # At each mount, the default policy would let the group read and write all files of the volume. Weir refuses such keys.
    fsGroupChangePolicy: OnRootMismatch
    {{- end }}
    seccompProfile: { type: RuntimeDefault }
  containers:
    - name: weir
      image: {{ $image | quote }}
      args: [serve, --config, /etc/weir/weir.toml]
      ports:
        - { name: public, containerPort: 8080 }
        - { name: admin, containerPort: 8081 }
        {{- if .Values.gateway.routes }}
        - { name: grpc, containerPort: 8082 }
        {{- end }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      # All probes use the admin listener, which has separate connections: a full public listener is no reason to kill a server.
      startupProbe:
        # The server is ready when the store has sent the zones.
        httpGet: { path: /readyz, port: admin }
        periodSeconds: 2
        failureThreshold: 150
      readinessProbe:
        # Not /readyz: it is 503 while the store is away, and would remove all pods from the Service at once, while they can
        # still answer everybody who waits. Kubernetes removes a pod that ends.
        httpGet: { path: /healthz, port: admin }
        periodSeconds: 5
        failureThreshold: 2
      livenessProbe:
        httpGet: { path: /healthz, port: admin }
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      {{- if $pause }}
      lifecycle:
        preStop:
          # Gives the load balancers time to remove the pod. Then SIGTERM drains it: requests under way are answered, and
          # streams are told to reconnect.
          sleep: { seconds: {{ $pause }} }
      {{- end }}
      volumeMounts:
        - { name: config, mountPath: /etc/weir/weir.toml, subPath: weir.toml, readOnly: true }
        {{- if include "weir.keysSecret" . }}
        - { name: keys, mountPath: /etc/weir/keys, readOnly: true }
        {{- end }}
        {{- if include "weir.ownPasswordVolume" . }}
        - { name: redis, mountPath: /etc/weir/redis, readOnly: true }
        {{- end }}
        {{- if .Values.redis.caSecret.name }}
        - { name: redis-ca, mountPath: /etc/weir/redis-ca, readOnly: true }
        {{- end }}
        {{- if .Values.otlp.headersSecret.name }}
        - { name: otlp, mountPath: /etc/weir/otlp, readOnly: true }
        {{- end }}
        {{- if include "weir.tlsSecret" . }}
        # A directory and no subPath, so that a renewed certificate arrives.
        - { name: tls, mountPath: /etc/weir/tls, readOnly: true }
        {{- end }}
        {{- if .Values.templates.configMap }}
        - { name: templates, mountPath: /etc/weir/templates, readOnly: true }
        {{- end }}
        - { name: data, mountPath: /var/lib/weir }
  volumes:
    - name: config
      configMap: { name: {{ include "weir.fullname" . }}-config }
    {{- with include "weir.keysSecret" . }}
    # The same for all servers of the store.
    - name: keys
      secret:
        secretName: {{ . | quote }}
        defaultMode: 0440
    {{- end }}
    {{- if include "weir.ownPasswordVolume" . }}
    - name: redis
      secret:
        secretName: {{ .Values.redis.passwordSecret.name | quote }}
        defaultMode: 0440
        items: [{ key: {{ .Values.redis.passwordSecret.key | quote }}, path: {{ .Values.redis.passwordSecret.key | quote }} }]
    {{- end }}
    {{- if .Values.redis.caSecret.name }}
    - name: redis-ca
      secret:
        secretName: {{ .Values.redis.caSecret.name | quote }}
        defaultMode: 0440
        items: [{ key: {{ .Values.redis.caSecret.key | quote }}, path: {{ .Values.redis.caSecret.key | quote }} }]
    {{- end }}
    {{- if .Values.otlp.headersSecret.name }}
    - name: otlp
      secret:
        secretName: {{ .Values.otlp.headersSecret.name | quote }}
        defaultMode: 0440
        items: [{ key: {{ .Values.otlp.headersSecret.key | quote }}, path: {{ .Values.otlp.headersSecret.key | quote }} }]
    {{- end }}
    {{- with include "weir.tlsSecret" . }}
    - name: tls
      secret:
        secretName: {{ . | quote }}
        defaultMode: 0440
    {{- end }}
    {{- with .Values.templates.configMap }}
    - name: templates
      configMap:
        name: {{ . | quote }}
        {{- with $.Values.templates.files }}
        items:
          {{- range $key, $file := . }}
          - { key: {{ $key | quote }}, path: {{ $file | quote }} }
          {{- end }}
        {{- end }}
    {{- end }}
    - name: data
      {{- if include "weir.shared" . }}
      # The lines are in Redis.
      emptyDir: { medium: Memory, sizeLimit: 16Mi }
      {{- else }}
      persistentVolumeClaim: { claimName: {{ include "weir.fullname" . }}-data }
      {{- end }}
{{- end -}}

{{/* "true" if the password of Redis is in another Secret than the keys. */}}
{{- define "weir.ownPasswordVolume" -}}
{{- with .Values.redis.passwordSecret.name -}}
{{- if ne . (include "weir.keysSecret" $) -}}true{{- end -}}
{{- end -}}
{{- end -}}
