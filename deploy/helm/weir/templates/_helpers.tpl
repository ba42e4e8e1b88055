{{/* The name of what belongs to a release: weir, or weir behind another name. */}}
{{- define "weir.name" -}}
{{- if eq .Release.Name "weir" }}weir{{ else }}{{ printf "%s-weir" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "weir.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: weir
{{- end }}

{{/* weir.selector (dict "root" $ "component" NAME) */}}
{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "weir.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end }}

{{/*
Sizes. The figures are those of docs/performance.md on one core, and docs/kubernetes.md has the reckoning: processor time of an event in ROUTE 2.8 and in
DETECT 1.9 microseconds, doubled for the hours in which it is more. One pod may be away: the others take its part.
*/}}
{{- define "weir.keyed" -}}
{{- dig "kafka" "partitions" "keyed" 64 .Values.config -}}
{{- end }}

{{- define "weir.budgetMiB" -}}
{{- if .Values.stages.detect.budgetMiB }}{{ .Values.stages.detect.budgetMiB | int }}
{{- else }}{{ max 32 (divf (mulf .Values.sizing.keys 128) (mulf (include "weir.keyed" .) 1048576) | ceil | int) }}
{{- end }}
{{- end }}

{{/* weir.millicores (dict "root" $ "stage" NAME): of all pods of a stage together */}}
{{- define "weir.millicores" -}}
{{- $per := dict "route" 0.0056 "detect" 0.0038 "record" 0.001 "enforce" 0.001 -}}
{{- mulf .root.Values.sizing.eventsPerSecond (get $per .stage) | ceil | int -}}
{{- end }}

{{/* Two at least, so that one may be away, and so many that none needs more than two cores. */}}
{{- define "weir.replicas" -}}
{{- $stage := get .root.Values.stages .stage -}}
{{- if kindIs "invalid" $stage.replicas }}{{ max 2 (add 1 (divf (include "weir.millicores" .) 2000 | ceil | int)) }}
{{- else }}{{ $stage.replicas | int }}
{{- end }}
{{- end }}

{{- define "weir.resources" -}}
{{- $stage := get .root.Values.stages .stage -}}
{{- if $stage.resources }}{{ toYaml $stage.resources }}
{{- else }}
{{- $others := max 1 (sub (include "weir.replicas" . | int) 1) | int -}}
{{- $memory := 512 -}}
{{- if eq .stage "detect" -}}
{{- $partitions := divf (include "weir.keyed" .root) $others | ceil | int -}}
{{- $memory = add 400 (mulf 1.25 (mul $partitions (include "weir.budgetMiB" .root | int)) | ceil | int) -}}
{{- end -}}
requests: {cpu: {{ add 100 (divf (include "weir.millicores" .) $others | ceil | int) }}m, memory: {{ $memory }}Mi}
limits: {memory: {{ $memory }}Mi}
{{- end }}
{{- end }}

{{/* A gate has all blocks in memory, 250 bytes each and as much that is yet to be collected: a kilobyte a block, and 256 MiB for the checks under way. */}}
{{- define "weir.gate.resources" -}}
{{- if .Values.gate.resources }}{{ toYaml .Values.gate.resources }}
{{- else }}
{{- $memory := add 256 (divf .Values.sizing.blocks 1024 | ceil | int) -}}
requests: {cpu: 100m, memory: {{ $memory }}Mi}
limits: {memory: {{ $memory }}Mi}
{{- end }}
{{- end }}

{{/* weir.secrets (dict "root" $ "own" MAP "servers" LIST): the secret files of a process that speaks to these servers, as a map in YAML */}}
{{- define "weir.secrets" -}}
{{- $servers := .servers -}}
{{- $found := dict -}}
{{- range $field, $ref := merge (dict) (.own | default dict) .root.Values.secretFiles -}}
{{- if has (splitList "." $field | first) $servers -}}{{- $_ := set $found $field $ref -}}{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* weir.pod (dict "root" $ "component" NAME "of" VALUES "servers" LIST "args" LIST "ports" LIST "resources" YAML "stable" BOOL "probes" BOOL): the spec of a pod */}}
{{- define "weir.pod" -}}
{{- $root := .root -}}
{{- $secrets := include "weir.secrets" (dict "root" $root "own" .of.secretFiles "servers" .servers) | fromYaml -}}
serviceAccountName: {{ include "weir.name" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 30
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .spread }}
topologySpreadConstraints:
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "weir.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
containers:
  - {{- include "weir.container" . | nindent 4 }}
volumes:
  - name: config
    configMap: {name: {{ include "weir.name" $root }}}
{{- range $field, $ref := $secrets }}
  - name: {{ $field | replace "." "-" | replace "_" "-" }}
    secret: {secretName: {{ $ref.secret }}, defaultMode: 0440, items: [{key: {{ $ref.key }}, path: value}]}
{{- end }}
{{- end }}

{{- define "weir.container" -}}
{{- $root := .root -}}
{{- $secrets := include "weir.secrets" (dict "root" $root "own" .of.secretFiles "servers" .servers) | fromYaml -}}
name: {{ .component }}
image: {{ include "weir.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
args: {{ toJson .args }}
env:
  - {name: WEIR_CONFIG, value: /etc/weir/weir.yaml}
{{- if .stable }}
  - name: WEIR_KAFKA_INSTANCE_ID
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end }}
{{- range $field, $ref := $secrets }}
  - {name: {{ printf "WEIR_%s" ($field | replace "." "_" | upper) }}, value: {{ printf "/etc/weir/secrets/%s/value" $field }}}
{{- end }}
{{- with .of.env }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .ports }}
ports:
{{- range $name, $port := . }}
  - {name: {{ $name }}, containerPort: {{ $port }}}
{{- end }}
{{- end }}
{{- if .probes }}
startupProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end }}
{{- with .resources }}
resources: {{- . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: config, mountPath: /etc/weir/weir.yaml, subPath: weir.yaml, readOnly: true}
{{- range $field, $ref := $secrets }}
  - {name: {{ $field | replace "." "-" | replace "_" "-" }}, mountPath: {{ printf "/etc/weir/secrets/%s" $field }}, readOnly: true}
{{- end }}
{{- end }}

{{/* What the gate's pod is made of. */}}
{{- define "weir.gate.terms" -}}
component: gate
of: {{- toYaml .Values.gate | nindent 2 }}
servers: [redis]
args: [gate]
ports: {http: 9464, gate: 9465}
probes: true
resources: {{- include "weir.gate.resources" . | toYaml | nindent 2 }}
{{- end }}

{{/* A pod is started anew when its configuration changes. */}}
{{- define "weir.annotations" -}}
checksum/config: {{ include "weir.config" . | sha256sum }}
{{- end }}

{{/* weir.yaml: what the values say, with what the pods need. */}}
{{- define "weir.config" -}}
{{- $own := dict
  "http" (dict "listen" "0.0.0.0:9464")
  "gate" (dict "listen" "0.0.0.0:9465")
  "console" (dict "listen" "0.0.0.0:9466")
  "detect" (dict "budget_per_partition" (printf "%sMiB" (include "weir.budgetMiB" .))) -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $own) -}}
{{- end }}
