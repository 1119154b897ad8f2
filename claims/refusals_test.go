package claims

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestKubernetesTwoIssuers: kube-apiserver looks at the last "iss" in any case first, and
// at the one that is spelled so when it has verified the signature. A token that shows each
// of them another issuer is refused by the second look.
func TestKubernetesTwoIssuers(t *testing.T) {
	w := newWorld(t)
	payload, err := w.claims.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.kubernetes(t).Validate(t.Context(), w.sign(t, payload))
	if err != nil {
		t.Fatal(err)
	}
	two := strings.Replace(string(payload), `"iss":"`+worldIssuer+`"`, `"iss":"https://other.example","ISS":"`+worldIssuer+`"`, 1)
	_, err = w.kubernetes(t).Validate(t.Context(), w.sign(t, []byte(two)))
	wantReason(t, err, CheckIssuer)

	legacy := newLegacyWorld(t)
	if payload, err = legacy.claims.Marshal(); err != nil {
		t.Fatal(err)
	}
	if _, err := legacy.validate(t); err != nil {
		t.Fatal(err)
	}
	two = strings.Replace(string(payload), `"iss":"`+LegacyIssuer+`"`, `"iss":"https://other.example","ISS":"`+LegacyIssuer+`"`, 1)
	config := legacy.kubernetesConfig()
	token := legacy.sign(t, []byte(two))
	config.Legacy = legacyObjects{legacy, NewTokenSecret(legacy.object, []byte(token), nil)}
	_, err = legacy.kubernetesWith(t, config).Validate(t.Context(), token)
	wantReason(t, err, CheckIssuer)
}

func wantReason(t testing.TB, err error, want Check) {
	t.Helper()
	e, ok := errors.AsType[*KubernetesError](err)
	if !ok || e.Reason == nil || e.Reason.Check != want {
		t.Errorf("got %v, want the check %s", err, string(want))
	}
}

// TestNodeCheckAnswers: a registry and a getter that answer and fail at once, or do
// neither, decide nothing; nor does a Node without UID vouch for a token without one.
func TestNodeCheckAnswers(t *testing.T) {
	w := newWorld(t)
	r, err := w.kubernetes(t).Validate(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, machines := range map[string]MachinesFunc{
		"nothing":             func(context.Context, string) (*RegisteredMachine, error) { return nil, nil },
		"an error":            func(context.Context, string) (*RegisteredMachine, error) { return nil, errDead },
		"an error and a good": func(context.Context, string) (*RegisteredMachine, error) { return w.machine, errDead },
	} {
		t.Run("machines: "+name, func(t *testing.T) {
			c := w.nodeCheck()
			c.Machines = machines
			facts, err := c.Check(t.Context(), r, attested())
			if wantCheck(t, err, ErrRetry); facts != nil || errors.Is(err, errNoAnswer) != (name == "nothing") {
				t.Errorf("facts %v of no answer, %v", facts, err)
			}
		})
	}
	for name, answer := range map[string]struct {
		node *Node
		err  error
	}{"nothing": {}, "an error": {nil, errDead}, "an error and a good": {w.objects.node, errDead}} {
		t.Run("objects: "+name, func(t *testing.T) {
			c := w.nodeCheck()
			c.Objects = oneNode{w.objects, answer.node, answer.err}
			facts, err := c.Check(t.Context(), r, attested())
			if wantCheck(t, err, ErrRetry); facts != nil {
				t.Error("facts of no answer")
			}
		})
	}
	t.Run("no UID anywhere", func(t *testing.T) {
		w := newWorld(t)
		w.claims.Kubernetes.Node.UID, w.objects.node.UID = "", ""
		n := attested()
		n.UID = ""
		_, err := w.holdNodeOf(t, n)
		wantCheck(t, err, CheckNodeClaimUID)
	})
}

// oneNode gives one answer for every Node.
type oneNode struct {
	Objects
	node *Node
	err  error
}

func (o oneNode) Node(context.Context, string) (*Node, error) { return o.node, o.err }

// TestExternalKeysLimits tries each limit at its value and one beyond.
func TestExternalKeysLimits(t *testing.T) {
	_, der := p256Key(t)
	keys := func(n int) []ExternalKey {
		list := make([]ExternalKey, n)
		for i := range list {
			list[i] = ExternalKey{KeyID: strconv.Itoa(i), Key: der}
		}
		return list
	}
	good := func() *ExternalKeys {
		return &ExternalKeys{Keys: keys(1), DataTimestamp: time.Unix(1, 0), RefreshHintSeconds: 1}
	}
	for name, tt := range map[string]struct {
		change func(k *ExternalKeys)
		good   bool
	}{
		"a hint of a second":      {func(k *ExternalKeys) { k.RefreshHintSeconds = 1 }, true},
		"no hint":                 {func(k *ExternalKeys) { k.RefreshHintSeconds = 0 }, false},
		"a negative hint":         {func(k *ExternalKeys) { k.RefreshHintSeconds = -1 }, false},
		"no keys":                 {func(k *ExternalKeys) { k.Keys = keys(0) }, false},
		"the most keys":           {func(k *ExternalKeys) { k.Keys = keys(MaxExternalKeys) }, true},
		"one more":                {func(k *ExternalKeys) { k.Keys = keys(MaxExternalKeys + 1) }, false},
		"no timestamp":            {func(k *ExternalKeys) { k.DataTimestamp = time.Time{} }, false},
		"the first second":        {func(k *ExternalKeys) { k.DataTimestamp = time.Time{}.Add(time.Second) }, true},
		"before the year 1":       {func(k *ExternalKeys) { k.DataTimestamp = time.Time{}.Add(-time.Second) }, false},
		"the last second":         {func(k *ExternalKeys) { k.DataTimestamp = time.Unix(MaxNumericDate, 0) }, true},
		"the year 10000":          {func(k *ExternalKeys) { k.DataTimestamp = time.Unix(MaxNumericDate+1, 0) }, false},
		"the longest key ID":      {func(k *ExternalKeys) { k.Keys[0].KeyID = strings.Repeat("k", 1024) }, true},
		"a byte more":             {func(k *ExternalKeys) { k.Keys[0].KeyID = strings.Repeat("k", 1025) }, false},
		"no key ID":               {func(k *ExternalKeys) { k.Keys[0].KeyID = "" }, false},
		"an empty key":            {func(k *ExternalKeys) { k.Keys[0].Key = []byte{} }, false},
		"a key of too many bytes": {func(k *ExternalKeys) { k.Keys[0].Key = append(der, make([]byte, MaxExternalKeySize)...) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := good()
			tt.change(k)
			checked, err := k.Check()
			switch {
			case tt.good && (err != nil || len(checked) != len(k.Keys)):
				t.Errorf("%d keys, %v", len(checked), err)
			case !tt.good:
				if wantCheck(t, err, CheckSignerKeys); checked != nil {
					t.Error("refused with keys")
				}
			}
		})
	}
}

// TestGrantKinds: what a token cannot be bound to is refused, and not left out.
func TestGrantKinds(t *testing.T) {
	policy := Policy{Issuer: "https://issuer.example", APIAudiences: []string{"api"}}
	b := Bound{ServiceAccount: &Object{Namespace: "ns", Name: "sa", UID: "u"}, Node: &Node{Object: Object{Name: "n", UID: "u"}}}
	for _, ref := range []BoundObjectReference{{Kind: "Job", APIVersion: "v1", Name: "n"}, {Kind: "Node", APIVersion: "x/v1", Name: "n"}, {Name: "n"}} {
		r := TokenRequest{Namespace: "ns", Name: "sa", BoundObject: &ref}
		if g, err := policy.Grant(&r, b, time.Unix(1700000000, 0), "id"); g != nil || !errors.Is(err, ReasonBadRequest) {
			t.Errorf("%+v: %+v, %v, want %v", ref, g, err, ReasonBadRequest)
		}
	}
}

// TestGrantNeedsNames: a request without namespace or name is one for nobody, also where
// there is an account without.
func TestGrantNeedsNames(t *testing.T) {
	policy := Policy{Issuer: "https://issuer.example", APIAudiences: []string{"api"}}
	for name, r := range map[string]TokenRequest{
		"no name":      {Namespace: "ns"},
		"no namespace": {Name: "sa"},
	} {
		t.Run(name, func(t *testing.T) {
			b := Bound{ServiceAccount: &Object{Namespace: r.Namespace, Name: r.Name, UID: "u"}}
			if g, err := policy.Grant(&r, b, time.Unix(1700000000, 0), "id"); g != nil || !errors.Is(err, ReasonBadRequest) {
				t.Errorf("%+v, %v, want %v", g, err, ReasonBadRequest)
			}
		})
	}
}
