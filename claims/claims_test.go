package claims

import (
	"reflect"
	"testing"
	"time"
)

func TestNumericDate(t *testing.T) {
	if d := NewNumericDate(time.Time{}); d.Present || !d.Time().IsZero() {
		t.Errorf("the zero time is %+v", d)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 999, time.FixedZone("", 3600))
	d := NewNumericDate(at)
	if !d.Present || d.Unix != at.Unix() || !d.Time().Equal(at.Truncate(time.Second)) || d.Time().Location() != time.UTC {
		t.Errorf("%v is %+v, %v", at, d, d.Time())
	}
	if d := NewNumericDate(time.Unix(0, 0)); !d.Present || d.Time().Unix() != 0 {
		t.Errorf("1970 is %+v", d)
	}
}

func TestMakeSubjectAndCredentialID(t *testing.T) {
	if got := MakeSubject("ns", "sa"); got != "system:serviceaccount:ns:sa" {
		t.Error(got)
	}
	if got := (&Claims{ID: "x"}).CredentialID(); got != "JTI=x" {
		t.Error(got)
	}
	if got := (&Claims{}).CredentialID(); got != "" {
		t.Error(got)
	}
}

// The pod, node and ID of a token are in the user's extra.
func TestExtraOfResults(t *testing.T) {
	pod, node := &Ref{Name: "p", UID: "1"}, &Ref{Name: "n", UID: "2"}
	for _, c := range []struct {
		name   string
		claims Claims
		want   map[string][]string
	}{
		{"nothing", Claims{}, nil},
		{"an ID", Claims{ID: "i"}, map[string][]string{extraPrefix + "credential-id": {"JTI=i"}}},
		{"pod and node", Claims{Kubernetes: Private{Pod: pod, Node: node}},
			map[string][]string{extraPrefix + "pod-name": {"p"}, extraPrefix + "pod-uid": {"1"}, extraPrefix + "node-name": {"n"}, extraPrefix + "node-uid": {"2"}}},
		{"a pod without UID", Claims{Kubernetes: Private{Pod: &Ref{Name: "p"}}}, nil},
		{"a pod without name", Claims{Kubernetes: Private{Pod: &Ref{UID: "1"}}}, nil},
		{"a node without UID", Claims{Kubernetes: Private{Node: &Ref{Name: "n"}}}, map[string][]string{extraPrefix + "node-name": {"n"}}},
		{"a node without name", Claims{Kubernetes: Private{Node: &Ref{UID: "2"}}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := (&Result{Claims: &c.claims}).Extra()
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
