{{/*
Names and labels. Two releases in one namespace never share a name. A name has at most 50 characters and is a DNS label, also with the
longest suffix; a StatefulSet needs 11 more for the label of its revision.
*/}}
{{- define "weir.fullname" -}}
{{- $name := ternary "weir" (printf "%s-weir" .Release.Name) (eq .Release.Name "weir") -}}
{{- if and (le (len $name) 50) (regexMatch "^[a-z][a-z0-9-]*$" $name) -}}
{{- $name -}}
{{- else -}}
{{- /* Too long, with a dot, or beginning with a digit. The digest keeps such names apart. */ -}}
{{- printf "weir-%s-%s" (.Release.Name | replace "." "-" | trunc 35 | trimSuffix "-") (sha256sum .Release.Name | trunc 8) -}}
{{- end -}}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/part-of: weir
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "weir-%s" .Chart.Version }}
{{- end -}}

{{/* "true" if the lines are in Redis, and empty otherwise. */}}
{{- define "weir.shared" -}}
{{- if ne .Values.store "memory" -}}true{{- end -}}
{{- end -}}

{{/* The Secret with the keys; empty if the server makes them on its volume. */}}
{{- define "weir.keysSecret" -}}
{{- if .Values.keys.create -}}{{ include "weir.fullname" . }}-keys{{- else -}}{{ .Values.keys.existingSecret }}{{- end -}}
{{- end -}}

{{/* The Secret with the certificate; empty without TLS. */}}
{{- define "weir.tlsSecret" -}}
{{- if .Values.tls.issuer.name -}}{{ include "weir.fullname" . }}-tls{{- else -}}{{ .Values.tls.secret }}{{- end -}}
{{- end -}}
