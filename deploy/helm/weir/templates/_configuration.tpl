{{/*
weir.toml, made from the values. Every text is written as a TOML string with escapes, so no value can begin another setting.
*/}}
{{- define "weir.toml.text" -}}
{{- . | toRawJson | replace "\x7f" "\\u007F" -}}
{{- end -}}

{{- define "weir.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . -}}{{ . }}{{- else -}}{{ include "weir.toml.text" . }}{{- end -}}
{{- end -}}

{{/* A value in one line. Helm reads numbers of YAML as floats; nearly all numbers of weir.toml are whole. */}}
{{- define "weir.toml.value" -}}
{{- if kindIs "string" . -}}
{{- include "weir.toml.text" . -}}
{{- else if kindIs "bool" . -}}
{{- . -}}
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}{{- $items = append $items (include "weir.toml.value" .) -}}{{- end -}}
[{{ join ", " $items }}]
{{- else if kindIs "map" . -}}
{{- $items := list -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $items = append $items (printf "%s = %s" (include "weir.toml.key" $key) (include "weir.toml.value" $value)) -}}
{{- end -}}
{{- end -}}
{ {{ join ", " $items }} }
{{- else if ne (float64 .) (floor .) -}}
{{- toString . -}}
{{- else -}}
{{- int64 . -}}
{{- end -}}
{{- end -}}

{{/* The fields of a table, each in its line. */}}
{{- define "weir.toml.fields" -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) }}
{{ include "weir.toml.key" $key }} = {{ include "weir.toml.value" $value }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "weir.configuration" -}}
{{- $config := deepCopy .Values.config -}}
{{- $seal := dict -}}
{{- $pass := $config.pass | default dict -}}
{{- if include "weir.keysSecret" . -}}
{{- $keys := "/etc/weir/keys/" -}}
{{- $_ := set $seal "key_file" (print $keys .Values.keys.seal) -}}
{{- $_ := set $pass "key_file" (print $keys .Values.keys.pass) -}}
{{- with .Values.keys.nextSeal -}}{{- $_ := set $seal "next_key_file" (print $keys .) -}}{{- end -}}
{{- with .Values.keys.previousSeal -}}{{- $_ := set $seal "previous_key_file" (print $keys .) -}}{{- end -}}
{{- with .Values.keys.nextPass -}}{{- $_ := set $pass "next_key_file" (print $keys .) -}}{{- end -}}
{{- with .Values.keys.previousPass -}}{{- $_ := set $pass "previous_key_file" (print $keys .) -}}{{- end -}}
{{- end -}}
{{- $redis := $config.redis | default dict -}}
{{- with .Values.redis.passwordSecret -}}
{{- if .name -}}
{{- $directory := ternary "keys" "redis" (eq .name (include "weir.keysSecret" $)) -}}
{{- $_ := set $redis "password_file" (printf "/etc/weir/%s/%s" $directory .key) -}}
{{- end -}}
{{- end -}}
{{- with .Values.redis.caSecret -}}
{{- if .name -}}{{- $_ := set $redis "ca_file" (print "/etc/weir/redis-ca/" .key) -}}{{- end -}}
{{- end -}}
{{- $otlp := $config.otlp | default dict -}}
{{- with .Values.otlp.headersSecret -}}
{{- if .name -}}{{- $_ := set $otlp "headers_file" (print "/etc/weir/otlp/" .key) -}}{{- end -}}
{{- end -}}
{{- $wait := $config.wait | default dict -}}
{{- if .Values.templates.configMap -}}{{- $_ := set $wait "templates_dir" "/etc/weir/templates" -}}{{- end -}}
{{- range $table, $fields := dict "seal" $seal "pass" $pass "redis" $redis "otlp" $otlp "wait" $wait -}}
{{- if $fields -}}{{- $_ := set $config $table $fields -}}{{- end -}}
{{- end -}}
{{- if include "weir.tlsSecret" . -}}
{{- $_ := set $config "tls" (dict "certificate" "/etc/weir/tls/tls.crt" "key" "/etc/weir/tls/tls.key") -}}
{{- end -}}
{{- if not $config.admin_token -}}
{{- /* The admin listener needs an entry. No token fits this one. */ -}}
{{- $none := dict "name" "nobody" "role" "viewer" "sha256" (repeat 64 "0") -}}
{{- $_ := set $config "admin_token" (list $none) -}}
{{- end -}}
# Made from the values of the Helm release {{ .Release.Name }}; a change restarts the pods one after another.
listen = "0.0.0.0:8080"
admin_listen = "0.0.0.0:8081"
{{- if .Values.gateway.routes }}
gate_grpc_listen = "0.0.0.0:8082"
{{- end }}
store = {{ include "weir.toml.text" .Values.store }}
data_dir = "/var/lib/weir"
{{- $settings := dict -}}
{{- $tables := dict -}}
{{- $arrays := dict -}}
{{- range $key, $value := $config -}}
{{- if kindIs "map" $value -}}{{- $_ := set $tables $key $value -}}
{{- else if has $key (list "admin_token" "route" "zone") -}}{{- $_ := set $arrays $key $value -}}
{{- else -}}{{- $_ := set $settings $key $value -}}
{{- end -}}
{{- end -}}
{{- include "weir.toml.fields" $settings -}}
{{- range $key, $value := $tables }}

[{{ $key }}]
{{- include "weir.toml.fields" $value -}}
{{- end -}}
{{- range $key, $tables := $arrays -}}
{{- range $tables }}

[[{{ $key }}]]
{{- include "weir.toml.fields" . -}}
{{- end -}}
{{- end -}}
{{- end -}}
