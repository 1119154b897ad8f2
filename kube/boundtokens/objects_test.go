package boundtokens_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
	"github.com/nodeattest/nodeattest/refusal"
)

const deletion = "2026-01-02T03:04:05Z"

// TestGet reads each resource that a token names, and of service accounts and Secrets the metadata
// alone.
func TestGet(t *testing.T) {
	deleted := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct {
		resource, namespace string
		path, accept        string
		answer              string
		want                claims.Object
	}{
		"a pod": {"pods", "shop", "/api/v1/namespaces/shop/pods/x", "application/json",
			`{"kind":"Pod","metadata":{"name":"x","namespace":"shop","uid":"u"},"spec":{"serviceAccountName":"cart","nodeName":"node-a"}}`,
			claims.Object{Name: "x", Namespace: "shop", UID: "u", ServiceAccountName: "cart", NodeName: "node-a"}},
		"a pod that is being deleted": {"pods", "shop", "/api/v1/namespaces/shop/pods/x", "application/json",
			`{"kind":"Pod","metadata":{"name":"x","namespace":"shop","uid":"u","deletionTimestamp":"` + deletion + `"}}`,
			claims.Object{Name: "x", Namespace: "shop", UID: "u", Deleted: &deleted}},
		"a Node": {"nodes", "", "/api/v1/nodes/x", "application/json",
			`{"kind":"Node","metadata":{"name":"x","uid":"u"},"spec":{"providerID":"sim://a"}}`, claims.Object{Name: "x", UID: "u", ProviderID: "sim://a"}},
		"a service account": {"serviceaccounts", "shop", "/api/v1/namespaces/shop/serviceaccounts/x", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
			`{"kind":"PartialObjectMetadata","metadata":{"name":"x","namespace":"shop","uid":"u"}}`, claims.Object{Name: "x", Namespace: "shop", UID: "u"}},
		"a Secret": {"secrets", "shop", "/api/v1/namespaces/shop/secrets/x", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
			`{"kind":"PartialObjectMetadata","metadata":{"name":"x","namespace":"shop","uid":"u"}}`, claims.Object{Name: "x", Namespace: "shop", UID: "u"}},
	} {
		t.Run(name, func(t *testing.T) {
			api, cluster := newCluster(t, boundtokens.Options{Secrets: true})
			api.put(tt.path, tt.answer)
			got, err := cluster.Get(t.Context(), tt.resource, tt.namespace, "x")
			if err != nil || asJSON(t, got) != asJSON(t, &tt.want) || api.asked[0] != "GET "+tt.path+" "+tt.accept {
				t.Errorf("got %+v, %v; asked %q", got, err, api.asked)
			}
			if !strings.Contains(tt.answer, deletion) {
				for _, other := range []string{
					strings.Replace(tt.answer, `"name":"x"`, `"name":"y"`, 1),
					strings.Replace(tt.answer, `"uid":"u"`, `"uid":""`, 1),
					strings.Replace(tt.answer, `"kind":"`, `"kind":"X`, 1),
					strings.Replace(tt.answer, `"metadata":{`, `"metadata":{"namespace":"other",`, 1),
				} {
					if tt.namespace != "" {
						other = strings.Replace(other, `"namespace":"shop",`, "", 1)
					}
					api.put(tt.path, other)
					_, err := cluster.Get(t.Context(), tt.resource, tt.namespace, "x")
					wantError(t, err, refusal.ErrRetry)
				}
			}
		})
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestGetNothing asks the API server for nothing that a token does not need.
func TestGetNothing(t *testing.T) {
	api, cluster := newCluster(t, boundtokens.Options{})
	for name, tt := range map[string]struct {
		resource, namespace, name string
		want                      error
	}{
		"a Secret without Options.Secrets": {"secrets", "shop", "x", claims.ErrNotFound},
		"a webhook configuration":          {"validatingwebhookconfigurations", "", "x", claims.ErrNotFound},
		"a Node of a namespace":            {"nodes", "shop", "x", claims.ErrNotFound},
		"a pod of no namespace":            {"pods", "", "x", claims.ErrNotFound},
		"a pod without a name":             {"pods", "shop", "", refusal.ErrRetry},
		"another path":                     {"pods", "shop", "../../../v1/secrets", refusal.ErrRetry},
		"another namespace":                {"pods", "..", "x", refusal.ErrRetry},
		"an escaped path":                  {"pods", "shop", "%2e%2e", refusal.ErrRetry},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cluster.Get(t.Context(), tt.resource, tt.namespace, tt.name)
			wantError(t, err, tt.want)
			if got != nil || api.asked != nil {
				t.Errorf("got %+v; asked %q", got, api.asked)
			}
		})
	}
	_, err := cluster.Get(t.Context(), "pods", "shop", "x")
	wantError(t, err, claims.ErrNotFound)
	if len(api.asked) != 1 || err.Error() != `pods "x" not found` {
		t.Errorf("%v; asked %q", err, api.asked)
	}
}

// TestNodeOfAnotherServer: a redirect is not followed.
func TestNodeOfAnotherServer(t *testing.T) {
	api, cluster := newCluster(t, boundtokens.Options{})
	api.set(nodePath, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	api.put("/elsewhere", `{"kind":"Node","metadata":{"name":"node-a","uid":"u"}}`)
	_, err := cluster.Get(t.Context(), "nodes", "", "node-a")
	wantError(t, err, refusal.ErrRetry)
	if len(api.asked) != 1 {
		t.Errorf("asked %q", api.asked)
	}
}
