package bootstraptokentest

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

const clusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// Requests returns the requests that reached the API server, in order. Their bodies have not been
// read.
func (c *Cluster) Requests() []*http.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// Intercept puts a handler in front of the API server, which is next, to make it slow or
// broken; nil makes it work again.
func (c *Cluster) Intercept(with func(next http.Handler) http.Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handler = http.HandlerFunc(c.serveAPI)
	if with != nil {
		c.handler = with(c.handler)
	}
}

// serveHTTP records a request before anything answers it.
func (c *Cluster) serveHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests = append(c.requests, r)
	handler := c.handler
	c.mu.Unlock()
	handler.ServeHTTP(w, r)
}

// serveAPI authenticates only bootstrap tokens. Like the roles that kubeadm makes, it lets every
// client read cluster-info, and forbids everything else.
func (c *Cluster) serveAPI(w http.ResponseWriter, r *http.Request) {
	user := "system:anonymous"
	if authorization := r.Header.Get("Authorization"); authorization != "" {
		bearer, ok := strings.CutPrefix(authorization, "Bearer ")
		known, err := bootstraptoken.Authenticate(r.Context(), bearer, c.Secret, c.opts.Now())
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
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) // a client that hung up
}

// Impostor is a way to impersonate a cluster.
type Impostor int

// The impostors. Each has its own address and CA.
const (
	// WrongSecret knows the ID of the token, which is public, and makes up a secret:
	// bootstraptoken.CheckSignature.
	WrongSecret Impostor = iota + 1
	// WrongCA has the token, from a node that once joined, and publishes its own CA:
	// bootstraptoken.CheckPinned.
	WrongCA
	// MixedBundle has the token too, and publishes the cluster's CA alongside its own. A client
	// that trusts a whole bundle because of one pin, as kubeadm does, takes it for the cluster:
	// bootstraptoken.CheckCertificate.
	MixedBundle
	// TamperedKubeconfig publishes the cluster's document and signatures with another
	// server in it: bootstraptoken.CheckSignature.
	TamperedKubeconfig
	// Relay publishes the cluster's document and signatures, unchanged, under its own certificate:
	// bootstraptoken.CheckCertificate.
	Relay
)

// NewImpostor starts an impostor of the cluster, and closes it when the test ends.
func (c *Cluster) NewImpostor(t testing.TB, kind Impostor) *Cluster {
	t.Helper()
	return forTest(t)(c.Impostor(kind))
}

// Impostor starts a server that impersonates the cluster; the caller closes it. Later changes
// to the cluster do not affect it.
func (c *Cluster) Impostor(kind Impostor) (*Cluster, error) {
	opts := Options{Token: c.Token(), Now: c.opts.Now}
	if kind == WrongSecret {
		_, secret, _ := strings.Cut(bootstraptoken.Generate().Reveal(), ".")
		var err error
		if opts.Token, err = bootstraptoken.New(c.Token().ID(), secret); err != nil {
			return nil, err
		}
	}
	i, err := Open(opts)
	if err != nil {
		return nil, err
	}
	if err := i.pretend(kind, c); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

func (c *Cluster) pretend(kind Impostor, genuine *Cluster) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case WrongSecret, WrongCA:
	case MixedBundle:
		info := c.info()
		info.CAs = append(genuine.Info().CAs, info.CAs...)
		return c.publish(info)
	case TamperedKubeconfig:
		c.data = genuine.Data()
		kubeconfig := c.data[bootstraptoken.KubeconfigKey]
		c.data[bootstraptoken.KubeconfigKey] = strings.Replace(kubeconfig, genuine.Info().Server, c.URL(), 1)
	case Relay:
		c.data = genuine.Data()
	default:
		return errors.New("bootstraptokentest: no such impostor")
	}
	return nil
}
