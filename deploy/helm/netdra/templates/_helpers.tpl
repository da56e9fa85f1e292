{{- define "netdra.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "netdra.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "netdra.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "netdra.selectorLabels" -}}
app.kubernetes.io/name: netdra
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "netdra.labels" -}}
{{ include "netdra.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Not the labels of the driver's pods: the DaemonSet and the metrics Service would take the test's pod for one of them. */}}
{{- define "netdra.testLabels" -}}
app.kubernetes.io/name: netdra-test
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "netdra.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* What only classes may set. Each: field, expression that is true where the VFConfig `c` asks for it. */}}
{{- define "netdra.privilegedFields" -}}
- { field: driver, asked: "has(c.driver)" }
- { field: macAddress, asked: "has(c.macAddress)" }
- { field: vf.trust, asked: "has(c.vf) && has(c.vf.trust) && c.vf.trust == true" }
- { field: vf.spoofCheck, asked: "has(c.vf) && has(c.vf.spoofCheck) && c.vf.spoofCheck == false" }
- { field: vhost, asked: "has(c.vhost) && c.vhost == true" }
- { field: sysctls, asked: "has(c.sysctls)" }
- { field: cni, asked: "has(c.cni)" }
- { field: ipam, asked: "has(c.ipam)" }
- { field: networkAttachmentDefinition.namespace, asked: "has(c.networkAttachmentDefinition) && has(c.networkAttachmentDefinition.namespace) && c.networkAttachmentDefinition.namespace != request.namespace" }
- { field: dialects, asked: "has(c.dialects)" }
{{- end -}}
