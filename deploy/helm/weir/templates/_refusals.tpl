{{/*
Values that fit the schema and make no sense together. Each is refused with one sentence, and no text of a secret is repeated.
*/}}
{{- define "weir.refusals" -}}
{{- $values := .Values -}}
{{- if include "weir.shared" . -}}
  {{- if not (include "weir.keysSecret" .) -}}
    {{- fail "there are no keys, and servers that share a Redis need the same ones: name a Secret with seal.key and pass.pem in keys.existingSecret (deploy/make-secrets makes the files), or set keys.create to true" -}}
  {{- end -}}
{{- else -}}
  {{- if $values.autoscaling.enabled -}}
    {{- fail "autoscaling.enabled is true, and the embedded store belongs to one server: name a Redis in store, or turn autoscaling off" -}}
  {{- end -}}
  {{- if gt (int64 $values.replicas) 1 -}}
    {{- fail (printf "replicas is %d, and the embedded store belongs to one server: name a Redis in store, or set replicas to 1" (int64 $values.replicas)) -}}
  {{- end -}}
  {{- if or $values.config.redis $values.redis.passwordSecret.name $values.redis.caSecret.name -}}
    {{- fail "there are settings of Redis, and store is memory: name the Redis in store, or remove them" -}}
  {{- end -}}
  {{- if not $values.config.zone -}}
    {{- fail "config.zone is empty, and the embedded store needs a zone: add one with an id" -}}
  {{- end -}}
{{- end -}}
{{- if contains "@" $values.store -}}
  {{- fail "store has a user or a password, which everybody could read in the ConfigMap: put the user into config.redis.user, and the password into the Secret that redis.passwordSecret names" -}}
{{- end -}}
{{- if contains "@" ($values.config.fanout | default "") -}}
  {{- fail "config.fanout has a login, which everybody could read in the ConfigMap: let NATS check the servers by their network, or use redis" -}}
{{- end -}}
{{- /* The network policy opens the ports of these. A rule without ports would open all. */ -}}
{{- $hosts := "[^,/?@[:space:]]+:[0-9]{1,5}(,[^,/?@[:space:]]+:[0-9]{1,5})*" -}}
{{- $redis := printf "^(rediss?(-cluster)?://%s(/0?)?|rediss?-sentinel://%s(/0?)?[?]service=[^&]+)$" $hosts $hosts -}}
{{- if and (include "weir.shared" .) (not (regexMatch $redis $values.store)) -}}
  {{- fail "store is not the address of a Redis: write redis-cluster://HOST:PORT,HOST:PORT, redis://HOST:PORT, or redis-sentinel://HOST:PORT?service=NAME (rediss… with TLS)" -}}
{{- end -}}
{{- with $values.config.fanout -}}
  {{- if not (regexMatch (printf "^(redis|none|(nats|tls)://%s)$" $hosts) .) -}}
    {{- fail "config.fanout must be redis, none, or nats://HOST:PORT (tls://HOST:PORT)" -}}
  {{- end -}}
{{- end -}}
{{- with ($values.config.otlp | default dict).endpoint -}}
  {{- if not (regexMatch "^https?://[^,/?@[:space:]]+:[0-9]{1,5}(/[^?@[:space:]]*)?$" .) -}}
    {{- fail "config.otlp.endpoint is not the address of a collector: write http://HOST:4318 or https://HOST:443, with the port and without a user" -}}
  {{- end -}}
{{- else -}}
  {{- if or $values.otlp.headersSecret.name $values.config.otlp -}}
    {{- fail "there are settings of OpenTelemetry, and no collector: name it in config.otlp.endpoint, or remove them" -}}
  {{- end -}}
{{- end -}}
{{- if and $values.templates.files (not $values.templates.configMap) -}}
  {{- fail "templates.files names files, and templates.configMap is empty: name the ConfigMap that has them" -}}
{{- end -}}
{{- range $number, $route := $values.config.route -}}
  {{- range $kind := list "header" "cookie" -}}
    {{- range $name, $value := get $route $kind | default dict -}}
      {{- if and (kindIs "map" $value) (hasKey $value "secret") -}}
        {{- fail (printf "config.route[%d].%s.%s has a secret, which everybody could read in the ConfigMap: write sha256 with the output of `printf %%s \"$secret\" | sha256sum`" $number $kind $name) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and $values.config.route (not $values.config.trusted_proxies) -}}
  {{- fail "config.route is for proxies, and config.trusted_proxies lists none: list the networks of the proxies' pods" -}}
{{- end -}}
{{- if and $values.gateway.routes (not $values.config.trusted_proxies) -}}
  {{- fail "gateway.routes is set, and Weir answers only proxies in config.trusted_proxies: list the networks of Envoy's pods" -}}
{{- end -}}
{{- if and $values.keys.create $values.keys.existingSecret -}}
  {{- fail "keys.create and keys.existingSecret are both set: keep one of them" -}}
{{- end -}}
{{- if and $values.keys.create (eq $values.redis.passwordSecret.name (include "weir.keysSecret" .)) -}}
  {{- fail "redis.passwordSecret is the Secret that keys.create makes, and that has no password: name another one" -}}
{{- end -}}
{{- if and $values.tls.secret $values.tls.issuer.name -}}
  {{- fail "tls.secret and tls.issuer are both set: keep one of them" -}}
{{- end -}}
{{- if and $values.tls.issuer.name (not $values.tls.dnsNames) -}}
  {{- fail "tls.issuer is set, and tls.dnsNames is empty: list the names of the certificate" -}}
{{- end -}}
{{- if and $values.gateway.routes (include "weir.tlsSecret" .) (not $values.tls.dnsNames) -}}
  {{- fail "Envoy checks the certificate of the address for gRPC, and tls.dnsNames is empty: list a name of the certificate" -}}
{{- end -}}
{{- if and $values.gateway.routes (include "weir.tlsSecret" .) (hasPrefix "*" (first $values.tls.dnsNames)) -}}
  {{- fail "Envoy checks the first of tls.dnsNames in the certificate of the address for gRPC, and it is a wildcard: put a full name first" -}}
{{- end -}}
{{- if and $values.autoscaling.enabled (gt (int64 $values.autoscaling.minReplicas) (int64 $values.autoscaling.maxReplicas)) -}}
  {{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas: change one of them" -}}
{{- end -}}
{{- if and $values.autoscaling.enabled (not (dig "requests" "cpu" (dig "limits" "cpu" "" $values.resources) $values.resources)) -}}
  {{- fail "autoscaling measures the processor time in percent of what a pod requests, and resources.requests.cpu is not set" -}}
{{- end -}}
{{- if and $values.networkPolicy.enabled (contains "-sentinel:" $values.store) (not $values.networkPolicy.redisPorts) -}}
  {{- fail "store names Sentinels, and the network policy needs the ports of the Redis servers, too: list all of them in networkPolicy.redisPorts" -}}
{{- end -}}
{{- end -}}
