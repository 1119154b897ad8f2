package claims

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/refusal"
)

func TestStrictAccepts(t *testing.T) {
	w := newWorld(t)
	r, err := w.strict(t).Validate(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.claims, r.Claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if !slices.Equal(r.Audiences, []string{worldAudience}) || r.Key.KeyID() != w.signer.Key().KeyID() {
		t.Errorf("audiences %q, key %v", r.Audiences, r.Key)
	}
	if want := []string{"serviceaccounts", "pods", "nodes"}; !slices.Equal(w.objects.asked, want) {
		t.Errorf("asked for %q, want %q", w.objects.asked, want)
	}
}

// TestStrictAcceptsAlso has other good tokens, and borders.
func TestStrictAcceptsAlso(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"bound to a secret":   func(w *world) { w.bind("secret") },
		"bound to a node":     func(w *world) { w.bind("node") },
		"pod without a node":  func(w *world) { w.bind("pod"); w.objects.pod.NodeName = "" },
		"two audiences":       func(w *world) { w.claims.Audiences = []string{"a", worldAudience} },
		"24 hours":            func(w *world) { w.claims.Expiry.Unix = w.now.Unix() + 86400 },
		"at the leeway":       func(w *world) { w.now = w.claims.Expiry.Time().Add(time.Minute) },
		"before, in leeway":   func(w *world) { w.now = w.now.Add(-time.Minute) },
		"extended":            func(w *world) { w.extend() },
		"longest ID":          func(w *world) { w.claims.ID = strings.Repeat("x", maxTokenIDSize) },
		"pod deleted in 30 s": func(w *world) { w.objects.pod.Deleted = w.ago(-30 * time.Second) },
		"deleted 60 s ago":    func(w *world) { w.objects.pod.Deleted = w.ago(60 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			change(w)
			if _, err := w.strict(t).Validate(t.Context(), w.token(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// extend makes the token one of a year, with a warning where it was to end.
func (w *world) extend() {
	w.claims.Kubernetes.WarnAfter = NewNumericDate(w.now.Add(3607 * time.Second))
	w.claims.Expiry = NewNumericDate(w.now.AddDate(1, 0, 0))
}

func TestStrictRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(w *world)
		check  Check
	}{
		{"another issuer", func(w *world) { w.claims.Issuer += "/" }, CheckIssuer},
		{"no issuer", func(w *world) { w.claims.Issuer = "" }, CheckIssuer},
		{"unknown key", func(w *world) { w.signer = newWorld(t).signer }, CheckNoKey},
		{"another audience", func(w *world) { w.claims.Audiences = []string{worldIssuer} }, CheckAudience},
		{"no audience", func(w *world) { w.claims.Audiences = nil }, CheckAudience},
		{"no exp", func(w *world) { w.claims.Expiry = NumericDate{} }, checkLifetime},
		{"no nbf", func(w *world) { w.claims.NotBefore = NumericDate{} }, checkLifetime},
		{"no iat", func(w *world) { w.claims.IssuedAt = NumericDate{} }, checkLifetime},
		{"24 hours and a second", func(w *world) { w.claims.Expiry.Unix = w.now.Unix() + 86401 }, checkLifetime},
		{"24 hours and a second from nbf", func(w *world) { w.claims.Expiry.Unix += 23 * 3600; w.claims.NotBefore.Unix-- }, checkLifetime},
		{"no life", func(w *world) { w.claims.Expiry.Unix = w.now.Unix() }, checkLifetime},
		{"warned before it was issued", func(w *world) { w.claims.Kubernetes.WarnAfter.Present = true }, checkLifetime},
		{"a year, and no warning", func(w *world) { w.extend(); w.claims.Kubernetes.WarnAfter = NumericDate{} }, checkLifetime},
		{"not yet valid", func(w *world) { w.claims.NotBefore.Unix += 61 }, CheckNotBefore},
		{"issued in the future", func(w *world) { w.claims.IssuedAt.Unix += 61 }, CheckIssuedAt},
		{"expired", func(w *world) { w.now = w.claims.Expiry.Time().Add(time.Minute + 1) }, CheckExpired},
		{"stale", func(w *world) { w.extend(); w.now = w.now.Add(3667*time.Second + 1) }, checkStale},
		{"no ID", func(w *world) { w.claims.ID = "" }, checkTokenID},
		{"long ID", func(w *world) { w.claims.ID = strings.Repeat("x", maxTokenIDSize+1) }, checkTokenID},
		{"another subject", func(w *world) { w.claims.Subject = "system:serviceaccount:ns:admin" }, checkSubject},
		{"no namespace", func(w *world) { w.claims.Kubernetes.Namespace = "" }, checkPrivate},
		{"a malformed namespace", func(w *world) { w.claims.Kubernetes.Namespace = "a.b" }, checkPrivate},
		{"a malformed account", func(w *world) { w.claims.Kubernetes.ServiceAccount.Name = "a/b" }, checkPrivate},
		{"an account without UID", func(w *world) { w.claims.Kubernetes.ServiceAccount.UID = "" }, checkPrivate},
		{"a malformed pod", func(w *world) { w.claims.Kubernetes.Pod.Name = "../x" }, checkPrivate},
		{"a pod without UID", func(w *world) { w.claims.Kubernetes.Pod.UID = "" }, checkPrivate},
		{"a node without UID", func(w *world) { w.claims.Kubernetes.Node.UID = "" }, checkPrivate},
		{"a node without name", func(w *world) { w.claims.Kubernetes.Node.Name = "" }, checkPrivate},
		{"a secret without name", func(w *world) { w.bind("secret"); w.claims.Kubernetes.Secret.Name = "" }, checkPrivate},
		{"bound to nothing", func(w *world) { w.bind() }, checkUnbound},
		{"secret and pod", func(w *world) { w.bind("secret", "pod") }, checkBinding},
		{"secret and node", func(w *world) { w.bind("secret", "node") }, checkBinding},
		{"no account", func(w *world) { w.objects.account = nil }, Check("service-account-gone")},
		{"account made again", func(w *world) { w.objects.account.UID = "x" }, CheckServiceAccountUID},
		{"account deleted", func(w *world) { w.objects.account.Deleted = w.ago(61 * time.Second) }, CheckServiceAccountDeleted},
		{"no secret", func(w *world) { w.bind("secret"); w.objects.secret = nil }, Check("secret-gone")},
		{"secret made again", func(w *world) { w.bind("secret"); w.objects.secret.UID = "x" }, Check("secret-uid")},
		{"no pod", func(w *world) { w.objects.pod = nil }, checkPodGone},
		{"pod made again", func(w *world) { w.objects.pod.UID = "x" }, Check("pod-uid")},
		{"pod deleted", func(w *world) { w.objects.pod.Deleted = w.ago(61 * time.Second) }, Check("pod-deleted")},
		{"pod of another account", func(w *world) { w.objects.pod.ServiceAccountName = "admin" }, checkPodServiceAccount},
		{"pod on another node", func(w *world) { w.objects.pod.NodeName = "node-b" }, checkPodNode},
		{"pod on no node", func(w *world) { w.objects.pod.NodeName = "" }, checkPodNode},
		{"pod on a node, the token of none", func(w *world) { w.bind("pod") }, checkPodNode},
		{"Node of a pod gone", func(w *world) { w.objects.node = nil }, checkNodeGone},
		{"Node of a pod made again", func(w *world) { w.objects.node.UID = "x" }, checkNodeUID},
		{"Node of a pod deleted", func(w *world) { w.objects.node.Deleted = w.ago(61 * time.Second) }, checkNodeDeleted},
		{"Node gone", func(w *world) { w.bind("node"); w.objects.node = nil }, checkNodeGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			r, err := w.strict(t).Validate(t.Context(), w.token(t))
			wantCheck(t, err, tt.check)
			if r != nil || errors.Is(err, refusal.ErrRetry) {
				t.Errorf("got %v, %v; want a refusal without result", r, err)
			}
		})
	}
}

func TestStrictToken(t *testing.T) {
	w := newWorld(t)
	payload := w.payload(t)
	for _, tt := range []struct {
		name, header string
		check        Check
	}{
		{"JWT", `{"alg":"ES256","kid":"raw","typ":"JWT"}`, ""},
		{"no typ", `{"alg":"ES256","kid":"raw"}`, ""},
		{"access token", `{"alg":"ES256","kid":"raw","typ":"at+jwt"}`, checkTokenType},
		{"lower case", `{"alg":"ES256","kid":"raw","typ":"jwt"}`, checkTokenType},
		{"no kid", `{"alg":"ES256"}`, CheckNoKey},
		{"another kid", `{"alg":"ES256","kid":"x"}`, CheckNoKey},
		{"another alg", `{"alg":"RS256","kid":"raw"}`, CheckSignature},
		{"none", `{"alg":"none","kid":"raw"}`, checkToken},
		{"twice", `{"alg":"ES256","ALG":"ES256","kid":"raw"}`, checkToken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			token := w.raw(t, tt.header, payload)
			_, err := w.strict(t).Validate(t.Context(), token)
			if tt.check == "" && err != nil {
				t.Errorf("%s: %v", tt.name, err)
			} else if tt.check != "" {
				wantCheck(t, err, tt.check)
			}
		})
	}
	token := w.token(t)
	for i := range token { // the smallest change
		changed := []byte(token)
		changed[i] = nextLetterOrDot(changed[i])
		if _, err := w.strict(t).Validate(t.Context(), string(changed)); err == nil {
			t.Errorf("accepted with byte %d changed", i)
		}
	}
}

func nextLetterOrDot(c byte) byte {
	if c == '.' {
		return 'A'
	}
	return nextLetter(c)
}

// TestStrictUndecided: without an answer, nothing is refused and no token is used up.
func TestStrictUndecided(t *testing.T) {
	for name, change := range map[string]func(w *world, c *ValidatorConfig){
		"key set":        func(_ *world, c *ValidatorConfig) { c.Issuers[worldIssuer] = deadKeys{} },
		"getter":         func(w *world, _ *ValidatorConfig) { w.objects.fail = errDead },
		"silent getter":  func(w *world, _ *ValidatorConfig) { w.objects.silent = true },
		"registry":       func(_ *world, c *ValidatorConfig) { c.Node.FindMachine = silentMachines(errDead) },
		"silent machine": func(_ *world, c *ValidatorConfig) { c.Node.FindMachine = silentMachines(nil) },
		"replay cache":   func(_ *world, c *ValidatorConfig) { c.Replay = deadReplay{} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cache, config := newReplay(t, 0, w.clock), w.strictConfig()
			config.Replay, config.InsecureAllowReplay = cache, false
			change(w, &config)
			r, facts, err := w.strictWith(t, config).ValidateOnNode(t.Context(), w.token(t), &AttestedNode{Name: "node-a", Machine: "ek:sha256:aa"})
			wantCheck(t, err, refusal.ErrRetry)
			if r != nil || facts != nil || held(cache) != 0 {
				t.Errorf("a result %v, facts %v, or %d tokens used up", r, facts, held(cache))
			}
			if name != "silent getter" && name != "silent machine" && !errors.Is(err, errDead) {
				t.Errorf("the cause is not in %v", err)
			}
		})
	}
}

func silentMachines(err error) func(context.Context, string) (*RegisteredMachine, error) {
	return func(context.Context, string) (*RegisteredMachine, error) { return nil, err }
}

type deadReplay struct{}

func (deadReplay) Use(context.Context, string, string, time.Time) error { return errDead }

func TestStrictReplay(t *testing.T) {
	w := newWorld(t)
	config := w.strictConfig()
	config.Replay, config.InsecureAllowReplay = newReplay(t, 0, w.clock), false
	v := w.strictWith(t, config)
	token := w.token(t)

	w.objects.pod.NodeName = "node-b" // refused: not used up
	_, err := v.Validate(t.Context(), token)
	wantCheck(t, err, checkPodNode)
	w.objects.pod.NodeName = "node-a"
	_, _, err = v.ValidateOnNode(t.Context(), token, &AttestedNode{Name: "node-b"})
	wantCheck(t, err, checkNodeName)

	if _, err := v.Validate(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	_, err = v.Validate(t.Context(), token)
	wantCheck(t, err, checkReplay)
	_, _, err = v.ValidateOnNode(t.Context(), token, &AttestedNode{Name: "node-a", Machine: "ek:sha256:aa"})
	wantCheck(t, err, checkReplay)
	w.now = w.claims.Expiry.Time().Add(time.Minute) // the last moment
	_, err = v.Validate(t.Context(), token)
	wantCheck(t, err, checkReplay)

	w.claims.ID = "another"
	if _, _, err := v.ValidateOnNode(t.Context(), w.token(t), &AttestedNode{Name: "node-a", Machine: "ek:sha256:aa"}); err != nil {
		t.Errorf("another token: %v", err)
	}
}

func TestValidatorConfig(t *testing.T) {
	w := newWorld(t)
	cache := newReplay(t, 0, nil)
	for name, change := range map[string]func(c *ValidatorConfig){
		"zero":                           func(c *ValidatorConfig) { *c = ValidatorConfig{} },
		"no issuer":                      func(c *ValidatorConfig) { c.Issuers = nil },
		"an empty issuer":                func(c *ValidatorConfig) { c.Issuers[""] = c.Issuers[worldIssuer] },
		"no keys":                        func(c *ValidatorConfig) { c.Issuers[worldIssuer] = nil },
		"no audiences":                   func(c *ValidatorConfig) { c.Audiences = nil },
		"an empty audience":              func(c *ValidatorConfig) { c.Audiences = []string{""} },
		"no objects":                     func(c *ValidatorConfig) { c.Objects = nil },
		"no replay cache":                func(c *ValidatorConfig) { c.InsecureAllowReplay = false },
		"a cache and replay":             func(c *ValidatorConfig) { c.Replay = cache },
		"negative lifetime":              func(c *ValidatorConfig) { c.MaxLifetime = -1 },
		"more leeway":                    func(c *ValidatorConfig) { c.Leeway = time.Minute + 1 },
		"stale objects":                  func(c *ValidatorConfig) { c.Objects = staleObjects{w.objects} },
		"embedded objects":               func(c *ValidatorConfig) { c.Objects = struct{ *MemoryObjects }{&MemoryObjects{}} },
		"negative staleness":             func(c *ValidatorConfig) { c.MaxStaleness = -1 },
		"skipped objects that are there": func(c *ValidatorConfig) { c.InsecureSkipObjects, c.Node = true, NodeCheck{} },
		"node check, no objects":         func(c *ValidatorConfig) { c.InsecureSkipObjects, c.Objects = true, nil },
		"node check, no registry": func(c *ValidatorConfig) {
			c.Node = NodeCheck{Require: FactAttestedUID}
		},
		"node check, insecure and no registry": func(c *ValidatorConfig) {
			c.Node = NodeCheck{InsecureAllowUnattested: true}
		},
		"node check, unknown facts": func(c *ValidatorConfig) { c.Node.Require = endOfFacts },
	} {
		t.Run(name, func(t *testing.T) {
			config := w.strictConfig()
			change(&config)
			if _, err := NewValidator(config); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, want %v", err, refusal.CheckConfig)
			}
		})
	}
	config := w.strictConfig()
	config.Node = NodeCheck{}
	_, _, err := w.strictWith(t, config).ValidateOnNode(t.Context(), w.token(t), &AttestedNode{Name: "node-a", Machine: "ek:sha256:aa"})
	wantCheck(t, err, refusal.CheckConfig)
}

// TestStrictOptions: a lifetime and a leeway of one's own.
func TestStrictOptions(t *testing.T) {
	w := newWorld(t)
	token := w.token(t)
	config := w.strictConfig()
	config.MaxLifetime = time.Hour - time.Nanosecond
	_, err := w.strictWith(t, config).Validate(t.Context(), token)
	wantCheck(t, err, checkLifetime)

	config.MaxLifetime, config.Leeway = time.Hour, -1
	v := w.strictWith(t, config)
	if _, err := v.Validate(t.Context(), token); err != nil {
		t.Error(err)
	}
	issued := w.now
	w.now = issued.Add(-time.Nanosecond)
	_, err = v.Validate(t.Context(), token)
	wantCheck(t, err, CheckNotBefore)
	w.now = issued.Add(time.Hour + time.Nanosecond)
	_, err = v.Validate(t.Context(), token)
	wantCheck(t, err, CheckExpired)
}

// TestInsecureSkipObjects: without an API server everything is checked but the objects, of
// which none is asked for.
func TestInsecureSkipObjects(t *testing.T) {
	w := newWorld(t)
	config := w.strictConfig()
	config.Objects, config.InsecureSkipObjects, config.Node = nil, true, NodeCheck{}
	v := w.strictWith(t, config)
	w.objects.fail = errDead
	r, err := v.Validate(t.Context(), w.token(t))
	if err != nil || r.Username() != "system:serviceaccount:ns:app" || len(w.objects.asked) != 0 {
		t.Errorf("%+v, %v, asked for %v", r, err, w.objects.asked)
	}
	_, _, err = v.ValidateOnNode(t.Context(), w.token(t), attested())
	wantCheck(t, err, refusal.CheckConfig)
	for name, tt := range map[string]struct {
		change func(c *Claims)
		check  Check
	}{
		"another issuer":   {func(c *Claims) { c.Issuer = "https://other.example" }, CheckIssuer},
		"another audience": {func(c *Claims) { c.Audiences = []string{"x"} }, CheckAudience},
		"expired": {func(c *Claims) {
			c.Expiry = NewNumericDate(w.now.Add(-2 * time.Minute))
			c.IssuedAt.Unix -= 3600
			c.NotBefore.Unix -= 3600
		}, CheckExpired},
		"a long life":        {func(c *Claims) { c.Expiry = NewNumericDate(w.now.AddDate(1, 0, 0)) }, checkLifetime},
		"another subject":    {func(c *Claims) { c.Subject = "system:serviceaccount:ns:x" }, checkSubject},
		"no private claims":  {func(c *Claims) { c.Kubernetes = Private{} }, checkPrivate},
		"bound to two kinds": {func(c *Claims) { c.Kubernetes.Secret = &Ref{Name: "s", UID: "u"} }, checkBinding},
	} {
		t.Run(name, func(t *testing.T) {
			good := *w.claims
			defer func() { *w.claims = good }()
			tt.change(w.claims)
			_, err := v.Validate(t.Context(), w.token(t))
			wantCheck(t, err, tt.check)
		})
	}
}

// TestInsecureAllowUnbound accepts a token that is bound to nothing, and checks all else of it.
func TestInsecureAllowUnbound(t *testing.T) {
	w := newWorld(t)
	w.bind()
	config := w.strictConfig()
	config.InsecureAllowUnbound = true
	v := w.strictWith(t, config)
	if _, err := v.Validate(t.Context(), w.token(t)); err != nil {
		t.Error(err)
	}
	_, _, err := v.ValidateOnNode(t.Context(), w.token(t), attested())
	wantCheck(t, err, checkNodeClaim)
	_, _, err = w.strict(t).ValidateOnNode(t.Context(), w.token(t), attested())
	wantCheck(t, err, checkUnbound)
	w.objects.account.UID = "x"
	_, err = v.Validate(t.Context(), w.token(t))
	wantCheck(t, err, CheckServiceAccountUID)

	w = newWorld(t) // a bound token is still held against its objects
	config = w.strictConfig()
	config.InsecureAllowUnbound = true
	w.objects.pod = nil
	_, err = w.strictWith(t, config).Validate(t.Context(), w.token(t))
	wantCheck(t, err, checkPodGone)

	w = newWorld(t) // without objects too, where nothing is known but the token
	w.bind()
	config = w.strictConfig()
	config.Objects, config.InsecureSkipObjects, config.Node = nil, true, NodeCheck{}
	_, err = w.strictWith(t, config).Validate(t.Context(), w.token(t))
	wantCheck(t, err, checkUnbound)
	for _, kind := range []string{"pod", "secret", "node"} { // one reference is enough
		w.bind(kind)
		if _, err := w.strictWith(t, config).Validate(t.Context(), w.token(t)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestStrictTimeLimits tries the limits at their values.
func TestStrictTimeLimits(t *testing.T) {
	w := newWorld(t)
	config := w.strictConfig()
	config.Leeway = DefaultLeeway
	v := w.strictWith(t, config)
	w.claims.Expiry.Unix = w.claims.IssuedAt.Unix + 1
	if _, err := v.Validate(t.Context(), w.token(t)); err != nil {
		t.Errorf("a life of one second: %v", err)
	}
	w.claims.Expiry.Unix--
	_, err := v.Validate(t.Context(), w.token(t))
	wantCheck(t, err, checkLifetime)

	// A clock near 1970 gives absent times no meaning.
	w = newWorld(t)
	w.now = time.Unix(1000, 0)
	w.claims.Expiry, w.claims.NotBefore, w.claims.IssuedAt = NewNumericDate(time.Unix(2000, 0)), NewNumericDate(w.now), NewNumericDate(w.now)
	if _, err := w.strict(t).Validate(t.Context(), w.token(t)); err != nil {
		t.Fatal(err)
	}
	w.claims.IssuedAt = NumericDate{}
	_, err = w.strict(t).Validate(t.Context(), w.token(t))
	wantCheck(t, err, checkLifetime)
}
