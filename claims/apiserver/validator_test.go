package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

const cryptoMessage = "go-jose/go-jose: error in cryptographic primitive"

// refusedBy fails the test unless the error is kube-apiserver's, word for word.
func refusedBy(t testing.TB, r *claims.Result, err error, check refusal.Check, message string) {
	t.Helper()
	if r != nil {
		t.Errorf("refused with a result: %+v", r)
	}
	refusal, ok := errors.AsType[*ReviewError](err)
	if !ok {
		t.Fatalf("got %v, want a *ReviewError", err)
	}
	if err.Error() != message || refusal.Message != message {
		t.Errorf("message\n got %q\nwant %q", err, message)
	}
	wantCheck(t, err, check)
}

func TestValidatorAccepts(t *testing.T) {
	w := newWorld(t)
	r, err := w.kubernetes(t).Validate(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.claims, r.Claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if r.Key.KeyID() != w.signer.Key().KeyID() {
		t.Errorf("key %s", r.Key.KeyID())
	}
	if want := []string{worldAudience}; !slices.Equal(r.Audiences, want) {
		t.Errorf("audiences %q, want %q", r.Audiences, want)
	}
	if want := []string{"serviceaccounts", "pods"}; !slices.Equal(w.objects.asked, want) {
		t.Errorf("asked for %q, want %q: the API server does not get the Node of a pod-bound token", w.objects.asked, want)
	}
}

// TestValidatorRefuses makes one small change to a good token or its world at a time.
func TestValidatorRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(w *world)
		check   refusal.Check
		message string
	}{
		{"another issuer", func(w *world) { w.claims.Issuer += "/" }, checkNotOurs, "invalid bearer token"},
		{"no issuer", func(w *world) { w.claims.Issuer = "" }, checkNotOurs, "invalid bearer token"},
		{"the issuer of legacy tokens", func(w *world) { w.claims.Issuer = "kubernetes/serviceaccount" }, checkNotOurs, "invalid bearer token"},
		{"unknown key", func(w *world) { w.signer = newWorld(t).signer }, claims.CheckNoKey, "invalid signature, no keys found"},
		{"dead key set", func(w *world) { w.keys = deadKeys{} }, claims.CheckNoKey, "invalid signature, no keys found"},
		{"another audience", func(w *world) { w.claims.Audiences = []string{"a", "b"} }, claims.CheckAudience,
			`token audiences ["a" "b"] is invalid for the target audiences ["https://kubernetes.default.svc" "https://vault.example"]`},
		{"not yet valid", func(w *world) { w.claims.NotBefore.Unix += 61 }, claims.CheckNotBefore, "service account token is not valid yet"},
		{"expired", func(w *world) { w.claims.Expiry.Unix = w.now.Unix() - 61 }, claims.CheckExpired, "service account token has expired"},
		{"issued in the future", func(w *world) { w.claims.IssuedAt.Unix += 61 }, claims.CheckIssuedAt, "service account token is issued in the future"},
		{"no account", func(w *world) { w.objects.account = nil }, claims.Check("service-account-gone"), `serviceaccounts "app" not found`},
		{"account without a name", func(w *world) { w.claims.Kubernetes.ServiceAccount.Name = "" }, claims.Check("service-account-gone"), "resource name may not be empty"},
		{"account made again", func(w *world) { w.objects.account.UID = "other" }, claims.CheckServiceAccountUID, "service account UID (other) does not match claim (app-uid)"},
		{"account deleted", func(w *world) { w.objects.account.Deleted = w.ago(61 * time.Second) }, claims.CheckServiceAccountDeleted, "service account ns/app has been deleted"},
		{"dead getter", func(w *world) { w.objects.fail = errDead }, claims.Check("service-account-gone"), "connection refused"},
		{"silent getter", func(w *world) { w.objects.silent = true }, claims.Check("service-account-gone"), alive.ErrNoAnswer.Error()},
		{"no pod", func(w *world) { w.objects.pod = nil }, claims.Check("pod-gone"), invalidated},
		{"pod without a name", func(w *world) { w.claims.Kubernetes.Pod.Name = "" }, claims.Check("pod-gone"), invalidated},
		{"pod made again", func(w *world) { w.objects.pod.UID = "other" }, claims.Check("pod-uid"), "pod UID (other) does not match service account pod ref claim (pod-uid)"},
		{"pod deleted", func(w *world) { w.objects.pod.Deleted = w.ago(61 * time.Second) }, claims.Check("pod-deleted"), invalidated},
		{"no secret", func(w *world) { w.bind("secret"); w.objects.secret = nil }, claims.Check("secret-gone"), invalidated},
		{"secret made again", func(w *world) { w.bind("secret"); w.objects.secret.UID = "" }, claims.Check("secret-uid"), "secret UID () does not match service account secret ref claim (secret-uid)"},
		{"secret deleted", func(w *world) { w.bind("secret"); w.objects.secret.Deleted = w.ago(time.Hour) }, claims.Check("secret-deleted"), invalidated},
		{"no node", func(w *world) { w.bind("node"); w.objects.node = nil }, claims.Check("node-gone"), invalidated},
		{"node made again", func(w *world) { w.bind("node"); w.objects.node.UID = "other" }, claims.Check("node-uid"), "node UID (other) does not match service account node ref claim (node-uid)"},
		{"node deleted", func(w *world) { w.bind("node"); w.objects.node.Deleted = w.ago(time.Hour) }, claims.Check("node-deleted"), invalidated},
		{"node without UID in the claim", func(w *world) { w.bind("node"); w.claims.Kubernetes.Node.UID = "" }, claims.Check("node-uid"), "node UID (node-uid) does not match service account node ref claim ()"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			r, err := w.kubernetes(t).Validate(t.Context(), w.token(t))
			refusedBy(t, r, err, tt.check, tt.message)
			undecided := tt.name == "dead key set" || tt.name == "dead getter" || tt.name == "silent getter"
			if errors.Is(err, refusal.ErrRetry) != undecided {
				t.Errorf("refusal.ErrRetry in %v: want %v", err, undecided)
			}
		})
	}
}

// TestValidatorLetsThrough has faults that kube-apiserver does not check.
func TestValidatorLetsThrough(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"no times": func(w *world) {
			w.claims.Expiry, w.claims.NotBefore, w.claims.IssuedAt = claims.NumericDate{}, claims.NumericDate{}, claims.NumericDate{}
		},
		"no ID":                        func(w *world) { w.claims.ID = "" },
		"another subject":              func(w *world) { w.claims.Subject = "system:admin" },
		"pod on another node":          func(w *world) { w.objects.pod.NodeName = "node-b" },
		"Node of a pod gone":           func(w *world) { w.objects.node = nil },
		"no audience":                  func(w *world) { w.claims.Audiences = nil },
		"bound to everything":          func(w *world) { w.bind("pod", "secret", "node") },
		"bound to nothing":             func(w *world) { w.bind() },
		"expired within the leeway":    func(w *world) { w.claims.Expiry.Unix = w.now.Unix() - 60 },
		"not yet valid within leeway":  func(w *world) { w.claims.NotBefore.Unix += 60 },
		"issued ahead within leeway":   func(w *world) { w.claims.IssuedAt.Unix += 60 },
		"account deleted within grace": func(w *world) { w.objects.account.Deleted = w.ago(60 * time.Second) },
		"pod deleted within grace":     func(w *world) { w.objects.pod.Deleted = w.ago(60 * time.Second) },
		"node deleted ahead":           func(w *world) { w.bind("node"); w.objects.node.Deleted = w.ago(-time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			change(w)
			if _, err := w.kubernetes(t).Validate(t.Context(), w.token(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestValidatorLeewayToTheNanosecond: the borders belong to the good side.
func TestValidatorLeewayToTheNanosecond(t *testing.T) {
	w := newWorld(t)
	token := w.token(t)
	issued, expires := w.now, w.claims.Expiry.Time()
	for _, tt := range []struct {
		now  time.Time
		want refusal.Check
	}{
		{expires.Add(time.Minute), ""},
		{expires.Add(time.Minute + time.Nanosecond), claims.CheckExpired},
		{issued.Add(-time.Minute), ""},
		{issued.Add(-time.Minute - time.Nanosecond), claims.CheckNotBefore},
	} {
		t.Run(fmt.Sprint(tt.now), func(t *testing.T) {
			w.now = tt.now
			_, err := w.kubernetes(t).Validate(t.Context(), token)
			if tt.want == "" && err != nil {
				t.Errorf("at %v: %v", tt.now, err)
			} else if tt.want != "" {
				wantCheck(t, err, tt.want)
			}
		})
	}
}

// TestValidatorOrder makes two things wrong at a time: the first that is checked decides.
func TestValidatorOrder(t *testing.T) {
	steps := []struct {
		check refusal.Check
		wrong func(w *world)
	}{
		{checkNotOurs, func(w *world) { w.claims.Issuer = "other" }},
		{claims.CheckNoKey, func(w *world) { w.signer = newWorld(t).signer }},
		{claims.CheckAudience, func(w *world) { w.claims.Audiences = []string{"a"} }},
		{claims.CheckNotBefore, func(w *world) { w.claims.NotBefore.Unix += 99999 }},
		{claims.CheckExpired, func(w *world) { w.claims.Expiry.Unix -= 99999 }},
		{claims.CheckIssuedAt, func(w *world) { w.claims.IssuedAt.Unix += 99999 }},
		{claims.CheckServiceAccountUID, func(w *world) { w.objects.account.UID = "x" }},
		{claims.Check("secret-uid"), func(w *world) { w.claims.Kubernetes.Secret = &claims.Ref{Name: "secret"} }},
		{claims.Check("pod-uid"), func(w *world) { w.objects.pod.UID = "x" }},
	}
	for i, first := range steps {
		for _, second := range steps[i:] {
			w := newWorld(t)
			first.wrong(w)
			second.wrong(w)
			_, err := w.kubernetes(t).Validate(t.Context(), w.token(t))
			wantCheck(t, err, first.check)
		}
	}
}

func TestValidatorAudiences(t *testing.T) {
	w := newWorld(t)
	w.claims.Audiences = []string{"a", "b", "c"}
	token := w.token(t)
	v := w.kubernetes(t)
	r, err := v.Validate(t.Context(), token, "c", "x", "a", "a")
	if err != nil || !slices.Equal(r.Audiences, []string{"c", "a", "a"}) {
		t.Errorf("got %v, %v; want the audiences that were asked for, in their order", r, err)
	}
	_, err = v.Validate(t.Context(), token, "x")
	wantCheck(t, err, claims.CheckAudience)

	w.claims.Audiences = nil // good for the API server alone
	token = w.token(t)
	if r, err := v.Validate(t.Context(), token); err != nil || len(r.Audiences) != 2 {
		t.Errorf("got %v, %v; want the API server's audiences", r, err)
	}
	r, err = v.Validate(t.Context(), token, "x")
	refusedBy(t, r, err, claims.CheckAudience, `token audiences ["https://kubernetes.default.svc" "https://vault.example"] is invalid for the target audiences ["x"]`)
}

// TestValidatorKeyID: no key ID tries every key, another one finds none.
func TestValidatorKeyID(t *testing.T) {
	w := newWorld(t)
	other := newWorld(t)
	both, err := jws.NewStaticKeySet(other.signer.Key(), w.signer.Key())
	if err != nil {
		t.Fatal(err)
	}
	header := func(token, header string) string { return rejoin(t, token, 0, []byte(header)) }
	w.keys = both
	v := w.kubernetes(t)
	r, err := v.Validate(t.Context(), header(w.token(t), `{"alg":"ES256"}`))
	refusedBy(t, r, err, claims.CheckSignature, cryptoMessage) // the header is signed
	r, err = v.Validate(t.Context(), header(w.token(t), fmt.Sprintf(`{"alg":"ES256","kid":%q}`, other.signer.Key().KeyID())))
	refusedBy(t, r, err, claims.CheckSignature, cryptoMessage)
	r, err = v.Validate(t.Context(), header(w.token(t), `{"alg":"ES256","kid":"?"}`))
	refusedBy(t, r, err, claims.CheckNoKey, "invalid signature, no keys found")

	w.useSigner(t, newSigner(t, newRSA(t))) // so that the first key has the algorithm too
	anonymous := w.raw(t, `{"alg":"RS256"}`)
	if r, err := w.kubernetes(t).Validate(t.Context(), anonymous); err != nil || r.Key.KeyID() != "raw" {
		t.Errorf("a token that names no key: %v", err)
	}
	_, err = w.strict(t).Validate(t.Context(), anonymous)
	wantCheck(t, err, claims.CheckNoKey)
}

func TestValidatorExtras(t *testing.T) {
	pair := map[string][]string{"authentication.kubernetes.io/pod-name": {"pod"}, "authentication.kubernetes.io/pod-uid": {"pod-uid"}}
	node := map[string][]string{"authentication.kubernetes.io/node-name": {"node-a"}, "authentication.kubernetes.io/node-uid": {"node-uid"}}
	id := map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10"}}
	join := func(parts ...map[string][]string) map[string][]string {
		var all map[string][]string
		for _, p := range parts {
			if all == nil {
				all = map[string][]string{}
			}
			maps.Copy(all, p)
		}
		return all
	}
	for _, tt := range []struct {
		name   string
		change func(w *world)
		want   map[string][]string
	}{
		{"pod and node", func(*world) {}, join(id, pair, node)},
		{"node", func(w *world) { w.bind("node") }, join(id, node)},
		{"pod", func(w *world) { w.bind("pod") }, join(id, pair)},
		{"secret", func(w *world) { w.bind("secret") }, id},
		{"plain", func(w *world) { w.bind() }, id},
		{"no ID", func(w *world) { w.bind(); w.claims.ID = "" }, nil},
		{"node without UID", func(w *world) { w.claims.Kubernetes.Node.UID = "" }, join(id, pair, map[string][]string{"authentication.kubernetes.io/node-name": {"node-a"}})},
		{"node UID without name", func(w *world) { w.claims.Kubernetes.Node.Name = "" }, join(id, pair)},
		{"half a pod", func(w *world) { w.claims.Kubernetes.Pod.UID, w.objects.pod.UID = "", "" }, join(id, node)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			r, err := w.kubernetes(t).Validate(t.Context(), w.token(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, r.Extra()); diff != "" {
				t.Errorf("extra (-want +got):\n%s", diff)
			}
			if r.Username() != "system:serviceaccount:ns:app" || r.UID() != "app-uid" ||
				!slices.Equal(r.Groups(), []string{"system:serviceaccounts", "system:serviceaccounts:ns"}) {
				t.Errorf("user %s %s %q", r.Username(), r.UID(), r.Groups())
			}
		})
	}
}

func TestValidatorConfig(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(c *ValidatorConfig){
		"zero":               func(c *ValidatorConfig) { *c = ValidatorConfig{} },
		"no issuer":          func(c *ValidatorConfig) { c.Issuers = nil },
		"empty issuer":       func(c *ValidatorConfig) { c.Issuers = []string{worldIssuer, ""} },
		"no keys":            func(c *ValidatorConfig) { c.Keys = nil },
		"no objects":         func(c *ValidatorConfig) { c.Objects = nil },
		"no audiences":       func(c *ValidatorConfig) { c.Audiences = nil },
		"an empty audience":  func(c *ValidatorConfig) { c.Audiences = []string{worldAudience, ""} },
		"another's keys":     func(c *ValidatorConfig) { c.Keys = keysOf{"https://other.example"} },
		"stale objects":      func(c *ValidatorConfig) { c.Objects = staleObjects{w.objects} },
		"negative staleness": func(c *ValidatorConfig) { c.MaxStaleness = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			config := w.kubernetesConfig()
			change(&config)
			if _, err := NewValidator(config); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: got %v, want %v", name, err, refusal.CheckConfig)
			}
		})
	}
}

// keysOf has no keys, and is fetched for one issuer.
type keysOf struct{ issuer string }

func (k keysOf) Keys(context.Context, string) ([]*jws.Key, error) { return nil, nil }
func (k keysOf) Issuer() string                                   { return k.issuer }

// TestValidatorIssuerOfWhatCannotBeRead: a claim set that encoding/json does not read, or
// that is too long, has no issuer, whatever it says.
func TestValidatorIssuerOfWhatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	validate := func(payload string) error {
		_, err := w.kubernetes(t).Validate(t.Context(), w.sign(t, []byte(payload)), worldAudience)
		return err
	}
	wantReason(t, validate(`{"iss":"`+worldIssuer+`","ISS":5}`), checkNotOurs)
	good := w.payload(t)
	// "ISS" is what only the second reader takes, so that the size is what decides.
	padded := func(size int) string {
		text := `{"ISS":"` + worldIssuer + `","x":"",` + string(good[1:])
		return strings.Replace(text, `"x":""`, `"x":"`+strings.Repeat("x", size-len(text))+`"`, 1)
	}
	if err := validate(padded(claims.MaxClaimsSize)); err != nil {
		t.Errorf("the longest claim set: %v", err)
	}
	wantReason(t, validate(padded(claims.MaxClaimsSize+1)), checkNotOurs)
}

// TestValidatorKeysThatAreNil: a key set with a hole in it does not panic, and the reason
// for a token whose header cannot be read is the fault of the header.
func TestValidatorKeysThatAreNil(t *testing.T) {
	w := newWorld(t)
	config := w.kubernetesConfig()
	config.Keys = keySetFunc(func(context.Context, string) ([]*jws.Key, error) { return []*jws.Key{nil}, nil })
	_, err := w.kubernetesWith(t, config).Validate(t.Context(), w.token(t), worldAudience)
	wantReason(t, err, claims.CheckSignature)

	token := encode(`{"alg":"none","kid":"`+w.signer.Key().KeyID()+`"}`) + "." + encode(string(w.payload(t))) + "." + encode(string(make([]byte, 64)))
	_, err = w.kubernetes(t).Validate(t.Context(), token, worldAudience)
	if wantReason(t, err, claims.CheckSignature); !errors.Is(err, jws.CheckAlgorithm) {
		t.Errorf("got %v, want %v in it", err, jws.CheckAlgorithm)
	}
}

// TestMembers: text that is not JSON, in each place.
func TestMembers(t *testing.T) {
	for _, text := range []string{"", "x", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1}}`, `{5:1}`} {
		if _, err := parseLenient([]byte(text), Kubernetes137); !errors.Is(err, claims.CheckEncoding) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, _, err := parseClaims([]byte(`{"iss":5,"aud":5}`), Kubernetes137)
	if e, ok := errors.AsType[*refusal.Error](err); !ok || e.Check != claims.CheckType || !strings.HasPrefix(e.Got, "iss") {
		t.Errorf("of two faults, %v", err)
	}
}

// TestIssuerAsksEachTime: no token is issued for an object out of a cache.
func TestIssuerAsksEachTime(t *testing.T) {
	w := newWorld(t)
	config := IssuerConfig{Issuer: worldIssuer, APIAudiences: []string{worldIssuer}, Signer: w.signer, Objects: staleObjects{w.objects}, Now: w.clock}
	if _, err := NewIssuer(config); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("out of a cache: %v", err)
	}
	config.Objects = w.objects
	issuer := newIssuer(t, config)
	if _, err := issuer.Issue(t.Context(), &TokenRequest{Namespace: "ns", Name: "app"}); err != nil {
		t.Error(err)
	}
	w.objects.account.AsOf = *w.ago(1)
	if _, err := issuer.Issue(t.Context(), &TokenRequest{Namespace: "ns", Name: "app"}); !errors.Is(err, claims.Check("stale-answer")) {
		t.Errorf("an old service account: %v", err)
	}
}

// TestValidatorStaleAnswers: an answer that is too old is refused. A pod-bound token's Node is not
// looked up.
func TestValidatorStaleAnswers(t *testing.T) {
	w := newWorld(t)
	config := w.kubernetesConfig()
	config.Objects, config.MaxStaleness = staleObjects{w.objects}, 5*time.Second
	v := w.kubernetesWith(t, config)
	w.objects.account.AsOf, w.objects.pod.AsOf = *w.ago(0), *w.ago(5 * time.Second)
	if _, err := v.Validate(t.Context(), w.token(t), worldAudience); err != nil {
		t.Error(err)
	}
	w.objects.pod.AsOf = *w.ago(5*time.Second + 1)
	if _, err := v.Validate(t.Context(), w.token(t), worldAudience); !errors.Is(err, claims.Check("stale-answer")) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("an old pod: %v", err)
	}
}

// TestValidatorResultOnNode: a result of this package can be compared with an attested node.
func TestValidatorResultOnNode(t *testing.T) {
	w := newWorld(t)
	r, err := w.kubernetes(t).Validate(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	check := claims.NodeCheck{FindMachine: func(context.Context, string) (*claims.RegisteredMachine, error) {
		return &claims.RegisteredMachine{Identity: "ek:sha256:aa"}, nil
	}}
	node := &claims.AttestedNode{Name: "node-a", Machine: "ek:sha256:aa", ProviderID: "gce://p/z/a"}
	facts, err := check.Check(t.Context(), w.objects, r, node, w.now)
	if err != nil || !facts.Facts.Has(claims.FactRegisteredMachine) {
		t.Errorf("%v, %v", facts, err)
	}
	node.Name = "node-b"
	if _, err := check.Check(t.Context(), w.objects, r, node, w.now); !errors.Is(err, claims.Check("node-name")) {
		t.Errorf("got %v, want %v", err, claims.Check("node-name"))
	}
}
