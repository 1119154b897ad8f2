package bootstraptokentest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

const clusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// Requests are those that reached the API server, in their order. Their bodies were not
// read.
func (c *Cluster) Requests() []*http.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// serveHTTP knows nobody but the bearers of its tokens, and allows everybody to read
// cluster-info and nobody anything else, as the roles that kubeadm makes do.
func (c *Cluster) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if f := c.received(r); f != nil && f.serve(w, r) {
		return
	}
	user := "system:anonymous"
	if authorization := r.Header.Get("Authorization"); authorization != "" {
		bearer, ok := strings.CutPrefix(authorization, "Bearer ")
		known, err := bootstraptoken.Authenticate(r.Context(), bearer, c.Secret, c.options.Now())
		if !ok || err != nil {
			status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			return
		}
		user = known.Name
	}
	if r.URL.Path != clusterInfoPath || r.Method != http.MethodGet {
		status(w, http.StatusForbidden, "Forbidden", "User "+`"`+user+`" cannot do that`)
		return
	}
	data := c.Data()
	if data == nil {
		status(w, http.StatusNotFound, "NotFound", `configmaps "cluster-info" not found`)
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"kind": "ConfigMap", "apiVersion": "v1", "data": data,
		"metadata": map[string]any{
			"name": bootstraptoken.ClusterInfoName, "namespace": bootstraptoken.ClusterInfoNamespace,
			"uid": "6f2c44a3-0000-4000-8000-000000000001", "resourceVersion": "42", "creationTimestamp": "2026-01-01T00:00:00Z",
			"managedFields": []any{map[string]any{"manager": "kubeadm", "operation": "Update", "fieldsV1": map[string]any{"f:data": map[string]any{".": map[string]any{}, "f:kubeconfig": map[string]any{}}}}},
		},
	})
}

func status(w http.ResponseWriter, code int, reason, message string) {
	answer(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{},
		"status": "Failure", "message": message, "reason": reason, "code": code})
}

func answer(w http.ResponseWriter, code int, object any) {
	body, err := json.Marshal(object)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client that hung up
}
