{{- define "sqlbrain.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Names of members are names of pods, FULLNAME-0; -members and -migrate are added to it. */ -}}
{{- define "sqlbrain.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "sqlbrain.selector" -}}
app.kubernetes.io/name: {{ include "sqlbrain.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sqlbrain.members" -}}
{{ include "sqlbrain.selector" . }}
app.kubernetes.io/component: server
{{- end }}

{{- define "sqlbrain.migration" -}}
{{ include "sqlbrain.selector" . }}
app.kubernetes.io/component: migrate
{{- end }}

{{- define "sqlbrain.backups" -}}
{{ include "sqlbrain.selector" . }}
app.kubernetes.io/component: backup
{{- end }}

{{- /* The CronJob: Kubernetes allows 52 characters. */ -}}
{{- define "sqlbrain.backupName" -}}
{{ include "sqlbrain.fullname" . | trunc 45 | trimSuffix "-" }}-backup
{{- end }}

{{- define "sqlbrain.labels" -}}
{{ include "sqlbrain.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end }}

{{- define "sqlbrain.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "sqlbrain.replicas" -}}
{{- if .Values.replicas -}}
{{ .Values.replicas }}
{{- else -}}
{{ ternary 3 1 (ne .Values.datastore.url "") }}
{{- end -}}
{{- end }}

{{- /* The label job of the metrics: alerts take one value for one cluster, and look for sqlbrain in it. */ -}}
{{- define "sqlbrain.job" -}}
sqlbrain/{{ .Release.Namespace }}/{{ include "sqlbrain.fullname" . }}
{{- end }}

{{- define "sqlbrain.scheme" -}}
{{ ternary "https" "http" (ne .Values.tls.secretName "") }}
{{- end }}

{{- /* The ports of the database: those of the hosts in the URL, unless one is set. */ -}}
{{- define "sqlbrain.databasePorts" -}}
{{- $standard := ternary 4000 3306 (hasPrefix "tidb://" .Values.datastore.url) -}}
{{- $ports := list -}}
{{- range regexFind "@[^/]+" .Values.datastore.url | splitList "," -}}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" | default $standard -}}
{{- $ports = append $ports (dict "port" ($.Values.networkPolicy.database.port | default $port | int) "protocol" "TCP") -}}
{{- end -}}
{{ $ports | uniq | toJson }}
{{- end }}

{{- /* Variables that say how the database is reached: for the migration, which runs before the file of settings exists. */ -}}
{{- define "sqlbrain.datastoreEnv" -}}
{{- if .Values.datastore.url }}
- {name: SQLBRAIN_DATASTORE, value: {{ .Values.datastore.url | quote }}}
{{- if .Values.datastore.passwordSecret.name }}
- {name: SQLBRAIN_DATASTORE_PASSWORD_FILE, value: /run/secrets/datastore/password}
{{- end }}
{{- with .Values.datastore.passwordFrom }}
- {name: SQLBRAIN_DATASTORE_PASSWORD_FROM, value: {{ . }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "sqlbrain.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "sqlbrain.fullname" .) "" .Values.serviceAccount.create) }}
{{- end }}

{{- /* What the members and the migration mount. */ -}}
{{- define "sqlbrain.sharedMounts" -}}
{{- if .Values.datastore.passwordSecret.name }}
- {name: datastore, mountPath: /run/secrets/datastore, readOnly: true}
{{- end }}
{{- if .Values.datastore.caSecret.name }}
- {name: database-ca, mountPath: /run/secrets/database-ca, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sqlbrain.sharedVolumes" -}}
{{- with .Values.datastore.passwordSecret }}
{{- if .name }}
- name: datastore
  secret: {secretName: {{ .name }}, defaultMode: 0440, items: [{key: {{ .key }}, path: password}]}
{{- end }}
{{- end }}
{{- with .Values.datastore.caSecret }}
{{- if .name }}
- name: database-ca
  secret: {secretName: {{ .name }}, defaultMode: 0440, items: [{key: {{ .key }}, path: ca.crt}]}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sqlbrain.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sqlbrain.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Where a pod gets credentials of its cloud's identity: a service of the cloud, or one of the node. */ -}}
{{- define "sqlbrain.identityEgress" -}}
- ports: [{port: 443, protocol: TCP}]
- ports: [{port: 80, protocol: TCP}, {port: 988, protocol: TCP}] # 988: GKE's
  to: [{ipBlock: {cidr: 169.254.0.0/16}}]
{{- end }}

{{- /* The bucket of the backups, at the port of its URL. */ -}}
{{- define "sqlbrain.bucketEgress" -}}
{{- if hasPrefix "s3://" .Values.backup.to }}
{{- $endpoint := .Values.backup.s3.endpoint }}
{{- $port := regexFind ":[0-9]+/?$" $endpoint | trimAll ":/" }}
- ports: [{port: {{ $port | default (ternary 80 443 (hasPrefix "http:" $endpoint)) }}, protocol: TCP}]
{{- if not .Values.backup.s3.secretName }}
{{ include "sqlbrain.identityEgress" . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "sqlbrain.nameEgress" -}}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
  to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: kube-system}
    - ipBlock: {cidr: 169.254.20.10/32} # where a node's own cache of names listens
{{- end }}

{{- /* Names and the database: what each pod may reach on a database. */ -}}
{{- define "sqlbrain.databaseEgress" -}}
{{ include "sqlbrain.nameEgress" . }}
- ports: {{ include "sqlbrain.databasePorts" . }}
  {{- with .Values.networkPolicy.database.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if .Values.datastore.passwordFrom }}
{{ include "sqlbrain.identityEgress" . }}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Values that the schema cannot refuse. */ -}}
{{- define "sqlbrain.check" -}}
{{- $own := list "name" "datastore" "datastore-password-file" "datastore-password-from" "config-file" "console" "console-write" "data-dir" "migrate" "listen-client-urls" "advertise-client-urls" "listen-metrics-urls" "listen-peer-urls" "initial-advertise-peer-urls" "memory-limit-bytes" "snapshot-dir" "cert-file" "key-file" "trusted-ca-file" "client-cert-auth" "tls-min-version" "peer-cert-file" "peer-key-file" "peer-trusted-ca-file" "auth-token" "auth-token-ttl" "backup-to" "backup-keep" "backup-keep-bases" "backup-recipient" -}}
{{- range $name, $_ := .Values.settings -}}
{{- if has $name $own -}}
{{- fail (printf "settings.%s: the chart sets this flag from other values" $name) -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- $name := regexReplaceAll "^--?([^=]*).*$" . "${1}" -}}
{{- if has $name $own -}}
{{- fail (printf "extraArgs: the chart sets --%s from other values" $name) -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if or (eq .name "NAMESPACE") (and (hasPrefix "SQLBRAIN_" .name) (has (trimPrefix "SQLBRAIN_" .name | lower | replace "_" "-") $own)) -}}
{{- fail (printf "extraEnv: the chart sets %s from other values" .name) -}}
{{- end -}}
{{- end -}}
{{- with .Values.console -}}
{{- if and (or .ingress.enabled .httpRoute.enabled) (not (and .enabled .host)) -}}
{{- fail "console: an Ingress or HTTPRoute needs console.enabled and console.host" -}}
{{- end -}}
{{- if and .httpRoute.enabled (not .httpRoute.parentRefs) -}}
{{- fail "console.httpRoute.parentRefs: name the Gateway" -}}
{{- end -}}
{{- end -}}
{{- with .Values.backup -}}
{{- if and (not .claim) (or .schedule (hasPrefix "file:" .to)) -}}
{{- fail "backup.claim: files need a PersistentVolumeClaim" -}}
{{- end -}}
{{- if and .schedule (not $.Values.datastore.url) (eq $.Values.persistence.accessMode "ReadWriteOncePod") -}}
{{- fail "backup.schedule: its pod reads the SQLite file, which ReadWriteOncePod leaves to the server alone" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.datastore.passwordFrom .Values.datastore.passwordSecret.name -}}
{{- fail "datastore.passwordFrom: the password comes from passwordSecret already" -}}
{{- end -}}
{{- if and (not .Values.datastore.url) (gt (int (include "sqlbrain.replicas" .)) 1) -}}
{{- fail "replicas: SQLite allows one server; set datastore.url for more" -}}
{{- end -}}
{{- if and (eq .Values.auth.token "jwt") (not .Values.auth.jwt.secretName) -}}
{{- fail "auth.jwt.secretName: JWTs need a secret with keys" -}}
{{- end -}}
{{- with .Values.resources.requests.memory -}}
{{- $unit := get (dict "k" 1e3 "M" 1e6 "Mi" 1048576 "G" 1e9 "Gi" 1073741824 "" 1) (regexFind "[^0-9.].*$" .) -}}
{{- if and $unit (lt (mulf (regexFind "^[0-9.]+" .) $unit) 67108864.0) -}}
{{- fail "resources.requests.memory: no server starts with less than 64Mi" -}}
{{- end -}}
{{- end -}}
{{- $pdb := .Values.podDisruptionBudget.minAvailable -}}
{{- if and $pdb (ge (int $pdb) (int (include "sqlbrain.replicas" .))) -}}
{{- fail "podDisruptionBudget.minAvailable: with as many as there are replicas, no node could be drained" -}}
{{- end -}}
{{- end }}

{{- /* The file of settings that are the same on all members. sqlbrain refuses a line that it does not know. */ -}}
{{- define "sqlbrain.settings" -}}
{{- $scheme := include "sqlbrain.scheme" . }}
listen-client-urls: {{ $scheme }}://0.0.0.0:2379
listen-metrics-urls: http://0.0.0.0:2381
snapshot-dir: /snapshots
{{- if .Values.datastore.url }}
datastore: {{ .Values.datastore.url | quote }}
{{- if .Values.datastore.passwordSecret.name }}
datastore-password-file: /run/secrets/datastore/password
{{- end }}
{{- with .Values.datastore.passwordFrom }}
datastore-password-from: {{ . }}
{{- end }}
migrate: verify
listen-peer-urls: https://0.0.0.0:2380
{{- else }}
data-dir: /data
{{- end }}
{{- if .Values.tls.secretName }}
cert-file: /run/secrets/tls/tls.crt
key-file: /run/secrets/tls/tls.key
tls-min-version: {{ .Values.tls.minVersion }}
{{- if .Values.tls.clientCertAuth }}
trusted-ca-file: /run/secrets/tls/ca.crt
client-cert-auth: true
{{- end }}
{{- end }}
{{- if and .Values.datastore.url .Values.peerTLS.volume }}
peer-cert-file: /run/secrets/peer-tls/tls.crt
peer-key-file: /run/secrets/peer-tls/tls.key
peer-trusted-ca-file: /run/secrets/peer-tls/ca.crt
{{- end }}
{{- with .Values.auth }}
{{- if eq .token "jwt" }}
auth-token: {{ printf "jwt,pub-key=/run/secrets/jwt/%s,priv-key=/run/secrets/jwt/%s,sign-method=%s,ttl=%s" .jwt.publicKey .jwt.privateKey .jwt.signMethod .jwt.ttl | quote }}
{{- else }}
auth-token: simple
auth-token-ttl: {{ .tokenTTL | int64 }}
{{- end }}
{{- end }}
{{- with .Values.console }}
{{- if .enabled }}
console: true
console-write: {{ .write }}
{{- if and .host (not (hasKey $.Values.settings "host-whitelist")) }}
host-whitelist: {{ printf "*,%s" .host | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.backup }}
{{- if .to }}
backup-to: {{ .to | quote }}
backup-keep: {{ .keep }}
backup-keep-bases: {{ .keepBases | int64 }}
{{- with .recipients }}
backup-recipient: {{ join "," . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- /* Numbers in YAML are floats here: 8589934592 must not become 8.589934592e+09. */}}
{{ $name }}: {{ kindIs "float64" $value | ternary ($value | int64 | toString) ($value | toString) | quote }}
{{- end }}
{{- end }}
