package boundtokens_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
	"github.com/nodeattest/nodeattest/refusal"
)

// answering is a transport whose server gives one answer to each request.
type answering struct {
	code int
	body []byte
}

func (a *answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a.body))}, nil
}

// FuzzAnswer has any answer read as each object: what is found is the object that was asked for, and
// anything else is not found, not authenticated, or undecided.
func FuzzAnswer(f *testing.F) {
	testkit.BeginFuzz(f)
	record := testkit.Must(json.Marshal(attestedNode()))
	for _, seed := range []string{
		string(record), goodReview, `{"kind":"Node","metadata":{"name":"node-a","uid":"u"},"spec":{"providerID":"sim://a"}}`,
		`{"kind":"Status","reason":"NotFound","code":404}`, `{"kind":"Pod","metadata":{"name":"x","namespace":"shop","uid":"u"}}`, "{}", "",
	} {
		f.Add(200, []byte(seed))
		f.Add(404, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, code int, body []byte) {
		cluster := testkit.Must(boundtokens.New(&rest.Config{Host: "https://api.example", Transport: &answering{code, body}}, boundtokens.Options{}))
		good := code == http.StatusOK || code == http.StatusCreated
		decided := func(found bool, err, no error) {
			if found != (err == nil) || found && !good || err != nil && !errors.Is(err, refusal.ErrRetry) && !errors.Is(err, no) {
				t.Errorf("%d %q: found %t, %v", code, body, found, err)
			}
		}
		record, err := cluster.FindRecord(t.Context(), "node-a", credential)
		decided(record != nil, err, claims.ErrNotFound)
		if record != nil && (record.NodeName != "node-a" || record.CredentialID != credential) {
			t.Errorf("%q: %+v", body, record)
		}
		machine, err := cluster.FindMachine(t.Context(), "node-a")
		decided(machine != nil, err, claims.ErrNotFound)
		node, err := cluster.Get(t.Context(), "nodes", "", "node-a")
		decided(node != nil, err, claims.ErrNotFound)
		if node != nil && (node.Name != "node-a" || node.UID == "") {
			t.Errorf("%q: %+v", body, node)
		}
		review, err := cluster.Review(t.Context(), "the.to.ken", []string{"a"})
		decided(review != nil, err, claims.CheckReview)
	})
}
