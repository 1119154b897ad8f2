package bootstraptoken

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/secret"
)

func getting(objects ...*Object) SecretGetter {
	return func(_ context.Context, namespace, name string) (*Object, error) {
		for _, o := range objects {
			if o.Namespace == namespace && o.Name == name {
				return o, nil
			}
		}
		return nil, ErrNotFound
	}
}

// neverMoreThanKubernetes fails if a Secret signs here that does not in Kubernetes, or means
// something else.
func neverMoreThanKubernetes(t *testing.T, o *Object, now time.Time) {
	t.Helper()
	s, err := ParseSecretFor(o, Usages{Signing: true}, now)
	if err != nil {
		return
	}
	key, end, signs := kubernetesSigns(o, now)
	if !signs || !bytes.Equal(key, s.Token.key()) || !end.Equal(s.Expiration) {
		t.Fatalf("%v %q signs here alone", o, o.Data.Reveal())
	}
}

func TestNeverMoreThanKubernetes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		o := goodObject(t)
		for range random.IntN(4) {
			refusals[random.IntN(len(refusals))].change(o)
			if o.Data.IsZero() {
				o.Data = secret.New(map[string][]byte{})
			}
		}
		neverMoreThanKubernetes(t, o, testNow.Add(time.Duration(random.IntN(7200))*time.Second))
	}
}

// TestWhereKubernetesIsLax has one line for each field of a Secret that Kubernetes' signer
// reads, and for each that it passes over.
func TestWhereKubernetesIsLax(t *testing.T) {
	for _, test := range []struct {
		change
		signs bool // in Kubernetes
	}{
		{change{"good", func(*Object) {}, ""}, true},
		{change{"deleted", func(o *Object) { o.Deleted = &testNow }, checkDeleted}, true},
		{change{"secret in capitals", setData(keySecret, "0123456789ABCDEF"), checkSecret}, true},
		{change{"empty secret", setData(keySecret, ""), checkSecret}, false},
		{change{"empty expiration", setData(keyExpiration, ""), checkExpiration}, true},
		{change{"unreadable expiration", setData(keyExpiration, "tomorrow"), checkExpiration}, false},
		{change{"comma in expiration", setData(keyExpiration, "2026-11-21T13:00:00,5Z"), checkExpiration}, true},
		{change{"short hour in expiration", setData(keyExpiration, "2026-11-22T9:00:00Z"), checkExpiration}, true},
		{change{"year one", setData(keyExpiration, "0001-01-01T00:00:00Z"), checkExpiration}, false},
		{change{"bad group", setData(keyGroups, nodeGroup+","), checkGroups}, true},
		{change{"usage True", setData(keySigning, "True"), checkUsage}, false},
		{change{"no usage", dropData(keySigning), ""}, false},
		{change{"other usage True", setData(keyAuthentication, "True"), checkUsage}, true},
		{change{"auth-groups", setData("auth-groups", nodeGroup), ""}, true},
		{change{"description", setData(keyDescription, "\xff"), checkDescription}, true},
		{change{"wrong name", func(o *Object) { o.Name += "0" }, checkName}, false},
		{change{"no name", func(o *Object) { o.Name = testID }, checkName}, false},
		{change{"wrong ID", setData(keyID, "abcdeg"), checkID}, false},
		{change{"ends now", setData(keyExpiration, "2026-11-21T12:00:00Z"), ""}, false},
		{change{"ends in a second", setData(keyExpiration, "2026-11-21T12:00:01Z"), ""}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := goodObject(t)
			test.change.change(o)
			key, _, signs := kubernetesSigns(o, testNow)
			if signs != test.signs || signs && !bytes.Equal(key, o.Data.Reveal()[keySecret]) {
				t.Errorf("signs: %v, want %v", signs, test.signs)
			}
			if _, err := ParseSecretUnchecked(o); test.want == "" && err != nil || test.want != "" && !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			neverMoreThanKubernetes(t, o, testNow)
		})
	}
}
