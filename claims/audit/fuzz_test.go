package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// member is the member of nested objects as encoding/json reads them, under its exact name.
func member[T any](v any, path ...string) (value T) {
	for _, name := range path {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	value, _ = v.(T)
	return value
}

// naive reads an event with encoding/json.
func naive(v any) event {
	texts := func(path ...string) (list []string) {
		for _, s := range member[[]any](v, path...) {
			list = append(list, s.(string))
		}
		return list
	}
	text := func(path ...string) string { return member[string](v, path...) }
	e := event{kind: text("kind"), apiVersion: text("apiVersion"), stage: text("stage"), issued: text("annotations", annotationIssuedID),
		code: int64(member[float64](v, "responseStatus", "code")), uid: text("objectRef", "uid"), subresource: text("objectRef", "subresource"),
		Event: Event{AuditID: text("auditID"), Username: text("user", "username"), Impersonated: text("impersonatedUser", "username"), SourceIPs: texts("sourceIPs"),
			UserAgent: text("userAgent"), Verb: text("verb"), Resource: text("objectRef", "resource"), Namespace: text("objectRef", "namespace"), Name: text("objectRef", "name")}}
	if e.subresource != "" {
		e.Resource += "/" + e.subresource
	}
	if ids := texts("user", "extra", extraCredentialID); len(ids) == 1 {
		e.CredentialID = ids[0]
	}
	e.Time, _ = time.Parse(time.RFC3339, text("stageTimestamp"))
	return e
}

// FuzzParse: every line that is accepted says the same to encoding/json.
func FuzzParse(f *testing.F) {
	testkit.BeginFuzz(f)
	for _, e := range append(theft(), issue(1, tokenA, "admin", admins, members{"impersonatedUser": members{"username": node}}),
		members{"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": theft()[:1]}) {
		f.Add([]byte(line(e)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		events, err := parse(text)
		if err != nil || len(text) > maxText {
			return // long texts are cut
		}
		var whole any
		testkit.NoError(t, json.Unmarshal(text, &whole))
		all := []any{whole}
		if member[string](whole, "kind") == "EventList" {
			all = member[[]any](whole, "items")
		}
		if len(events) != len(all) {
			t.Fatalf("%d events, want %d", len(events), len(all))
		}
		for i, got := range events {
			want := naive(all[i])
			same := got.Time.Equal(want.Time) && slices.Equal(got.SourceIPs, want.SourceIPs)
			got.Time, want.Time, got.SourceIPs, want.SourceIPs = time.Time{}, time.Time{}, nil, nil
			if !same && len(want.SourceIPs) <= maxTexts || !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v, want\n%+v", got, want)
			}
		}
	})
}

// FuzzTrace: a log of any bytes is read to its end, and a node that is named stands in it.
func FuzzTrace(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add([]byte(content(f, logOf(theft()...))))
	f.Add([]byte(content(f, logOf(issue(1, tokenA, account, tokenB), issue(0, tokenB, account, tokenA)))))
	f.Fuzz(func(t *testing.T, text []byte) {
		log := Log{Name: "log", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}
		c, err := Trace(t.Context(), tokenA, log)
		if err != nil {
			return
		}
		if n := len(c.Links); n == 0 || n > maxLinks {
			t.Fatalf("%d links", n)
		}
		if name, err := c.Node(); err == nil && !strings.Contains(string(text), name) && !strings.Contains(string(text), `\`) {
			t.Errorf("node %q is not in the log", name)
		}
	})
}
