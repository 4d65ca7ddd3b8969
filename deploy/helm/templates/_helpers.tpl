{{- define "tracer.name" -}}
{{- if contains "tracer" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-tracer" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tracer.selector" -}}
app.kubernetes.io/name: tracer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tracer.labels" -}}
{{ include "tracer.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* What the server and the migration have in common. */}}
{{- define "tracer.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 8420
  runAsGroup: 8420
  fsGroup: 8420
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: home
    emptyDir:
      sizeLimit: {{ .Values.homeSize }}
  - name: search
    emptyDir:
      sizeLimit: {{ .Values.searchSize }}
  - name: tmp
    emptyDir: {}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tracer.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
env:
  - name: TRACER_DATABASE_URL
    valueFrom:
      secretKeyRef:
        name: {{ .Values.database.secret }}
        key: {{ .Values.database.urlKey }}
  {{- if .Values.database.directUrlKey }}
  - name: TRACER_DIRECT_DATABASE_URL
    valueFrom:
      secretKeyRef:
        name: {{ .Values.database.secret }}
        key: {{ .Values.database.directUrlKey }}
  {{- end }}
  - name: TRACER_HOME
    value: /var/lib/tracer
  - name: TRACER_SEARCH_DIR
    value: /var/lib/tracer-search
  - name: TRACER_GRPC_HOST
    value: "0.0.0.0"
  {{- range $name, $value := .Values.settings }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumeMounts:
  - name: home
    mountPath: /var/lib/tracer
  - name: search
    mountPath: /var/lib/tracer-search
  - name: tmp
    mountPath: /tmp
{{- end -}}
