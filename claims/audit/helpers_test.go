package audit

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	tokenA      = "JTI=3e61a579-7bca-4b01-b07b-41db21f511e0"
	tokenB      = "JTI=5c8b11b5-cc17-4a0c-8c6b-3f2f1ee51c5b"
	tokenC      = "JTI=9f0e0a4e-0f0e-4d8e-a1b3-0e3d5c9a6f11"
	certificate = "X509SHA256=28b3f3c801b8637374f88de01cdf5280812f909c78f06ecd298c990cb4522a6b"
	account     = "system:serviceaccount:shop:cart"
	node        = "system:node:node-1"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

type members map[string]any

// request is an event as kube-apiserver writes it at level Metadata.
func request(minute int, user, credentialID string, changes ...members) members {
	e := members{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseComplete",
		"auditID": "audit-" + user + credentialID + noon.Add(time.Duration(minute)*time.Minute).Format("15:04"), "requestURI": "/api/v1/nodes", "verb": "list",
		"user":      members{"username": user, "groups": []string{"system:authenticated"}, "extra": members{extraCredentialID: []string{credentialID}}},
		"sourceIPs": []string{"10.0.0.1"}, "userAgent": "kubelet/v1.36.3",
		"objectRef": members{"resource": "nodes", "apiVersion": "v1"}, "responseStatus": members{"metadata": members{}, "code": 200},
		"requestReceivedTimestamp": "2026-11-27T11:59:00.000000Z",
		"stageTimestamp":           noon.Add(time.Duration(minute) * time.Minute).Format("2006-01-02T15:04:05.000000Z07:00"),
		"annotations":              members{"authorization.k8s.io/decision": "allow"},
	}
	for _, c := range changes {
		maps.Copy(e, c)
	}
	return e
}

// issue is the event of a TokenRequest.
func issue(minute int, token, user, credentialID string, changes ...members) members {
	return request(minute, user, credentialID, append([]members{{
		"auditID": "issue-" + token + user, "verb": "create", "responseStatus": members{"code": 201},
		"objectRef":   members{"resource": "serviceaccounts", "subresource": "token", "namespace": "shop", "name": "cart", "apiVersion": "v1"},
		"annotations": members{annotationIssuedID: token},
	}}, changes...)...)
}

func line(e members) string { return string(testkit.Must(json.Marshal(e))) }

// logOf is a log with events, each on a line.
func logOf(events ...members) Log {
	var text strings.Builder
	for _, e := range events {
		text.WriteString(line(e) + "\n")
	}
	return textLog(text.String())
}

func textLog(text string) Log {
	return Log{Name: "audit.log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

func traced(t *testing.T, credentialID string, logs ...Log) *Chain {
	t.Helper()
	c, err := Trace(t.Context(), credentialID, logs...)
	testkit.NoError(t, err)
	return c
}

// ids are the credentials of a chain.
func ids(c *Chain) (all []string) {
	for _, l := range c.Links {
		all = append(all, l.CredentialID)
	}
	return all
}

func wantCheck(t *testing.T, err error, want refusal.Check, parts ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %s", err, want)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("got %v, want %q in it", err, p)
		}
	}
}
