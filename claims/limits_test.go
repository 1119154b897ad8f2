package claims

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

// TestNodeCheckLimits: all facts may be asked for, and none that is not known.
func TestNodeCheckLimits(t *testing.T) {
	w := newWorld(t)
	r, err := w.kubernetes(t).Validate(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	c := w.nodeCheck()
	c.Require = endOfFacts - 1
	if _, err := c.Check(t.Context(), r, attested()); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(c *NodeCheck){
		"an unknown fact": func(c *NodeCheck) { c.Require = endOfFacts },
		"no Objects":      func(c *NodeCheck) { c.Objects = nil },
		"no Machines":     func(c *NodeCheck) { c.Machines = nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := w.nodeCheck()
			change(c)
			_, err := c.Check(t.Context(), r, attested())
			wantCheck(t, err, CheckConfig)
		})
	}
}

func TestBearerLimits(t *testing.T) {
	most := strings.Repeat("a", jws.MaxTokenSize)
	if got, err := bearer(http.Header{"Authorization": {"Bearer " + most}}); err != nil || got != most {
		t.Errorf("the longest token: %d bytes, %v", len(got), err)
	}
	for _, value := range []string{"Bearer ", "Bearer", "", "Bearer " + most + "a", "Basic x"} {
		_, err := bearer(http.Header{"Authorization": {value}})
		wantCheck(t, err, CheckBearer)
	}
}

// causeOf is what an error of a check says was beneath it, nil for nothing.
func causeOf(t testing.TB, err error, check Check) error {
	t.Helper()
	wantCheck(t, err, check)
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Err
	}
	return nil
}

// TestExternalKeyCauses: a key that is too long is not parsed, and what does not parse says
// why.
func TestExternalKeyCauses(t *testing.T) {
	check := func(key []byte) error {
		_, err := (&ExternalKeys{Keys: []ExternalKey{{KeyID: "k", Key: key}}, DataTimestamp: time.Unix(1, 0), RefreshHintSeconds: 1}).Check()
		return causeOf(t, err, CheckSignerKeys)
	}
	if check(make([]byte, MaxExternalKeySize)) == nil || check(nil) == nil {
		t.Error("a key that does not parse, and nothing says why")
	}
	if cause := check(make([]byte, MaxExternalKeySize+1)); cause != nil {
		t.Errorf("a key that is too long was parsed: %v", cause)
	}
}

func TestExternalHeaderLimits(t *testing.T) {
	key, der := p256Key(t)
	id := strings.Repeat("k", jws.MaxKeyIDSize)
	keys, err := (&ExternalKeys{Keys: []ExternalKey{{KeyID: id, Key: der}}, DataTimestamp: time.Unix(1, 0), RefreshHintSeconds: 1}).Check()
	if err != nil {
		t.Fatal(err)
	}
	claims := encode(`{}`)
	if _, err := es256(t, key, `{"alg":"ES256","kid":"`+id+`","typ":"JWT"}`, claims).Check(claims, keys); err != nil {
		t.Errorf("the longest key ID: %v", err)
	}
	_, err = readExternalHeader(encode(`{"alg":"ES256","kid":"k","typ":"JWT","cty":"x"}`))
	if cause := causeOf(t, err, CheckSignerHeader); cause != nil {
		t.Errorf("a further member: %v", cause)
	}
	_, err = readExternalHeader("%")
	if cause := causeOf(t, err, CheckSignerHeader); cause == nil || !errors.As(cause, new(base64.CorruptInputError)) {
		t.Errorf("no base64url: %v", cause)
	}
}

func TestDecodeSegmentLimits(t *testing.T) {
	most := strings.Repeat("A", MaxSegmentSize)
	if got, err := decodeSegment(most); err != nil || len(got) != MaxSegmentSize/4*3 {
		t.Errorf("the longest segment: %d bytes, %v", len(got), err)
	}
	for _, more := range []string{"A", "AA"} {
		_, err := decodeSegment(most + more)
		wantCheck(t, err, CheckSize)
	}
	for _, end := range []string{"\r", "\n", "\r\n", "=", "\x0c", "\x0e", "\t"} {
		if _, err := decodeSegment("AAAA" + end); !errors.As(err, new(base64.CorruptInputError)) {
			t.Errorf("%q: %v", end, err)
		}
	}
}

// TestExternalClientSignUnknown: whether a key that signed is published could not be asked.
func TestExternalClientSignUnknown(t *testing.T) {
	key, _ := p256Key(t)
	s := scripted(t, key, "a")
	clock := newClock()
	c := newClient(t, s, &ExternalClientOptions{Now: clock.Now})
	defer c.Close()
	s.sign = func(claims string) (*ExternalSignature, error) {
		return es256(t, key, `{"alg":"ES256","kid":"b","typ":"JWT"}`, claims), nil
	}
	s.keys = func() (*ExternalKeys, error) { return nil, errDead }
	clock.Add(time.Second)
	_, err := c.Sign(t.Context(), []byte(`{}`))
	if !errors.Is(err, ErrRetry) || errors.Is(err, CheckSignerKey) {
		t.Errorf("got %v, want %v", err, ErrRetry)
	}
}

func TestSignerServiceLimits(t *testing.T) {
	s := newService(t, serviceConfig(t, newClock()))
	sign := func(c *Claims) error {
		payload, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Sign(testContext, encode(string(payload)))
		return err
	}
	ahead := goodClaims()
	ahead.IssuedAt.Unix, ahead.NotBefore.Unix, ahead.Expiry.Unix = ahead.IssuedAt.Unix+60, ahead.NotBefore.Unix+60, ahead.Expiry.Unix+60
	if err := sign(ahead); err != nil {
		t.Errorf("as far ahead as clocks may be apart: %v", err)
	}
	timeless := goodClaims()
	timeless.IssuedAt, timeless.NotBefore, timeless.Expiry.Unix = NumericDate{}, NumericDate{}, 600
	if err := sign(timeless); !errors.Is(err, CheckSignerClaims) {
		t.Errorf("without iat: %v", err)
	}
	if _, err := new(SignerService).Metadata(testContext); !errors.Is(err, CheckConfig) {
		t.Error(err)
	}
}

// TestIssuerAsksForWhatItNeeds: what is refused by itself is refused before anybody is
// asked, as in kube-apiserver, and a pod without a node has none that is asked for.
func TestIssuerAsksForWhatItNeeds(t *testing.T) {
	short := int64(1)
	pod := &BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod"}
	for name, tt := range map[string]struct {
		request TokenRequest
		change  func(o *worldObjects)
		asked   []string
	}{
		"another name":       {TokenRequest{Namespace: "ns", Name: "app", MetadataName: "x", BoundObject: pod}, nil, nil},
		"another account":    {TokenRequest{Namespace: "ns", Name: "app", UID: "x", BoundObject: pod}, nil, []string{"serviceaccounts"}},
		"a short lifetime":   {TokenRequest{Namespace: "ns", Name: "app", ExpirationSeconds: &short, BoundObject: pod}, nil, []string{"serviceaccounts"}},
		"a pod of others":    {TokenRequest{Namespace: "ns", Name: "app", BoundObject: pod}, func(o *worldObjects) { o.pod.ServiceAccountName = "x" }, []string{"serviceaccounts", "pods"}},
		"a pod nowhere":      {TokenRequest{Namespace: "ns", Name: "app", BoundObject: pod}, func(o *worldObjects) { o.pod.NodeName = "" }, []string{"serviceaccounts", "pods"}},
		"a pod on its node":  {TokenRequest{Namespace: "ns", Name: "app", BoundObject: pod}, nil, []string{"serviceaccounts", "pods", "nodes"}},
		"a kind of no token": {TokenRequest{Namespace: "ns", Name: "app", BoundObject: &BoundObjectReference{Kind: "Job"}}, nil, []string{"serviceaccounts"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tt.change != nil {
				tt.change(w.objects)
			}
			issuer := newIssuer(t, IssuerConfig{Policy: Policy{Issuer: worldIssuer, APIAudiences: []string{worldIssuer}}, Signer: w.signer, Objects: w.objects, Now: w.clock})
			_, _ = issuer.Issue(t.Context(), &tt.request)
			if !slices.Equal(w.objects.asked, tt.asked) {
				t.Errorf("asked for %q, want %q", w.objects.asked, tt.asked)
			}
		})
	}
}

// TestCachedObjectsMakesRoom: what is still good stays where dropping what is too old made
// room, and otherwise an eighth goes.
func TestCachedObjectsMakesRoom(t *testing.T) {
	const most = 16
	var from MemoryObjects
	clock := newClock()
	c := newCached(t, &from, CacheConfig{MaxAge: 1, MaxEntries: most, Now: clock.Now})
	get := func(i int) {
		t.Helper()
		name := strconv.Itoa(i)
		from.PutNode(Node{Object: Object{Name: name}})
		if _, err := c.Node(testContext, name); err != nil {
			t.Fatal(err)
		}
	}
	for i := range most {
		get(i)
	}
	get(most)
	if got := len(c.nodes.entries); got != most-most/8+1 {
		t.Errorf("%d entries after an eighth was dropped", got)
	}
	for i := most + 1; len(c.nodes.entries) < most-1; i++ {
		get(i)
	}
	clock.Add(1) // all of these are too old
	get(1000)
	get(1001)
	if got := len(c.nodes.entries); got != 2 {
		t.Errorf("%d entries, want the two that are good", got)
	}
}

// TestCachedObjectsMakesRoomForOne: where one that is too old makes room for the next, no
// other goes.
func TestCachedObjectsMakesRoomForOne(t *testing.T) {
	const most = 16
	var from MemoryObjects
	clock := newClock()
	c := newCached(t, &from, CacheConfig{MaxAge: 2, MaxEntries: most, Now: clock.Now})
	for i := range most + 1 {
		name := strconv.Itoa(i)
		from.PutNode(Node{Object: Object{Name: name}})
		if _, err := c.Node(testContext, name); err != nil {
			t.Fatal(err)
		}
		if i == 0 || i == most-1 {
			clock.Add(1)
		}
	}
	if got := len(c.nodes.entries); got != most {
		t.Errorf("%d entries, want %d", got, most)
	}
}

func TestOIDCLimits(t *testing.T) {
	key := newECDSA(t, "").Key()
	render := func(c OIDCConfig, keys ...PublishedKey) error {
		_, err := c.Render(keys)
		return err
	}
	long := func(n int) string { return "https://h/" + strings.Repeat("a", n-len("https://h/")) }
	for name, tt := range map[string]struct {
		config OIDCConfig
		good   bool
	}{
		"the longest issuer":      {OIDCConfig{Issuer: long(MaxURLSize), ExternalAddress: "h"}, true},
		"one more":                {OIDCConfig{Issuer: long(MaxURLSize + 1), ExternalAddress: "h"}, false},
		"the longest address":     {OIDCConfig{Issuer: "https://h", ExternalAddress: strings.Repeat("a", MaxURLSize)}, true},
		"a longer address":        {OIDCConfig{Issuer: "https://h", ExternalAddress: strings.Repeat("a", MaxURLSize+1)}, false},
		"an address with a user":  {OIDCConfig{Issuer: "https://h", ExternalAddress: "u@h"}, false},
		"an address with a path":  {OIDCConfig{Issuer: "https://h", ExternalAddress: "h/p"}, false},
		"an address with a query": {OIDCConfig{Issuer: "https://h", ExternalAddress: "h?q"}, false},
		"no address":              {OIDCConfig{Issuer: "https://h"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := render(tt.config, PublishedKey{Key: key}); (err == nil) != tt.good || !tt.good && !errors.Is(err, CheckConfig) {
				t.Error(err)
			}
		})
	}
	if err := render(OIDCConfig{Issuer: "https://h", ExternalAddress: "h"}, PublishedKey{Key: key}, PublishedKey{Key: key}); !errors.Is(err, jws.CheckKeySet) {
		t.Errorf("a key twice: %v", err)
	}
}

// keysAndError answers and fails at once.
type keysAndError struct{ key *jws.Key }

func (k keysAndError) PublishedKeys(context.Context) ([]PublishedKey, time.Duration, error) {
	return []PublishedKey{{Key: k.key}}, time.Hour, errDead
}

func TestOIDCHandlerSourceFails(t *testing.T) {
	h, err := NewOIDCHandler(OIDCConfig{Issuer: "https://h", ExternalAddress: "h"}, keysAndError{newECDSA(t, "").Key()})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, OIDCKeySetPath, nil))
	if answer.Code != http.StatusServiceUnavailable {
		t.Errorf("%d, want 503", answer.Code)
	}
}

func TestPolicyLimits(t *testing.T) {
	const least, most = 600 * time.Second, 1 << 32 * time.Second
	for name, tt := range map[string]struct {
		lifetime time.Duration
		good     bool
	}{"the least": {least, true}, "less": {least - 1, false}, "the most": {most, true}, "more": {most + 1, false}, "negative": {-1, false}} {
		t.Run(name, func(t *testing.T) {
			for _, p := range []Policy{{MaxExpiration: tt.lifetime}, {MaxExtendedExpiration: tt.lifetime}} {
				p.Issuer, p.APIAudiences = "https://h", []string{"api"}
				if err := p.Check(); (err == nil) != tt.good || !tt.good && !errors.Is(err, CheckConfig) {
					t.Errorf("%+v: %v", p, err)
				}
			}
		})
	}
}
