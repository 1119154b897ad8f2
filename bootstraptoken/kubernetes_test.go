package bootstraptoken

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
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

// neverMoreThanKubernetes fails if a Secret is good for something here that it is not good
// for in Kubernetes, or means something else.
func neverMoreThanKubernetes(t *testing.T, o *Object, now time.Time) {
	t.Helper()
	if s, err := DecodeFor(o, Usages{Signing: true}, now); err == nil && (!InsecureKubernetesSigns(o, now) || s.Token.ID() != string(o.Data[keyID])) {
		t.Fatalf("%v %q signs here alone", o, maps.Collect(maps.All(o.Data)))
	}
	if s, err := Decode(o); err == nil && s.Expired(now) != InsecureKubernetesExpired(o, now) {
		t.Fatalf("%q expires at another time", o.Data[keyExpiration])
	}
	if found, err := Sweep([]*Object{o}, now); err != nil || len(found.Delete) > 0 && !InsecureKubernetesExpired(o, now) {
		t.Fatalf("%v: %v is deleted here alone", err, o)
	}
	for _, bearer := range []string{testToken, string(o.Data[keyID]) + "." + string(o.Data[keySecret])} {
		user, err := Authenticate(context.Background(), bearer, getting(o), now)
		theirs, theirErr := InsecureKubernetesUser(o, bearer, now)
		if err == nil && (theirErr != nil || user.Name != theirs.Name || !slices.Equal(user.Groups, theirs.Groups)) {
			t.Fatalf("%v %q is %v here, and in Kubernetes %v, %v", o, maps.Collect(maps.All(o.Data)), user, theirs, theirErr)
		}
	}
}

func TestNeverMoreThanKubernetes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		o := goodObject(t)
		for range random.IntN(4) {
			refusals[random.IntN(len(refusals))].change(o)
			if o.Data == nil {
				o.Data = Data{}
			}
		}
		neverMoreThanKubernetes(t, o, testNow.Add(time.Duration(random.IntN(7200))*time.Second))
	}
}

// TestWhereKubernetesIsLax has one line for each Secret that Kubernetes takes, and what
// the functions without Insecure say of it.
func TestWhereKubernetesIsLax(t *testing.T) {
	for _, test := range []struct {
		change
		authenticates bool // in Kubernetes
		signs         bool
		expired       bool
	}{
		{change{"good", func(*Object) {}, ""}, true, true, false},
		{change{"deleted", func(o *Object) { o.Deleted = &testNow }, CheckDeleted}, false, true, false},
		{change{"secret in capitals", setData(keySecret, "0123456789ABCDEF"), CheckSecret}, false, true, false},
		{change{"empty expiration", setData(keyExpiration, ""), CheckExpiration}, true, true, false},
		{change{"unreadable expiration", setData(keyExpiration, "tomorrow"), CheckExpiration}, false, false, true},
		{change{"comma in expiration", setData(keyExpiration, "2026-11-21T13:00:00,5Z"), CheckExpiration}, true, true, false},
		{change{"short hour in expiration", setData(keyExpiration, "2026-11-22T9:00:00Z"), CheckExpiration}, true, true, false},
		{change{"year one", setData(keyExpiration, "0001-01-01T00:00:00Z"), CheckExpiration}, false, false, true},
		{change{"bad group", setData(keyGroups, NodeGroup+","), CheckGroups}, false, true, false},
		{change{"usage True", setData(keySigning, "True"), CheckUsage}, true, false, false},
		{change{"auth-groups", setData("auth-groups", NodeGroup), CheckUnknownKey}, true, true, false},
		{change{"description", setData(keyDescription, "\xff"), CheckDescription}, true, true, false},
		{change{"wrong name", func(o *Object) { o.Name += "0" }, CheckName}, false, false, false},
		{change{"wrong namespace", func(o *Object) { o.Namespace = "default" }, CheckNamespace}, false, false, false},
		{change{"wrong type", func(o *Object) { o.Type = "Opaque" }, CheckType}, false, false, false},
		{change{"wrong ID", setData(keyID, "abcdeg"), CheckID}, false, false, false},
		{change{"no authentication", setData(keyAuthentication, "false"), ""}, false, true, false},
		{change{"expired", setData(keyExpiration, "2026-11-21T12:00:00Z"), ""}, false, false, true},
	} {
		o := goodObject(t)
		test.change.change(o)
		_, userErr := InsecureKubernetesUser(o, testToken, testNow)
		if (userErr == nil) != test.authenticates || InsecureKubernetesSigns(o, testNow) != test.signs || InsecureKubernetesExpired(o, testNow) != test.expired {
			t.Errorf("%s: user %v, signs %v, expired %v", test.name, userErr, InsecureKubernetesSigns(o, testNow), InsecureKubernetesExpired(o, testNow))
		}
		if _, err := Decode(o); test.want == "" && err != nil || test.want != "" && !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		neverMoreThanKubernetes(t, o, testNow)
	}
}

func TestInsecureKubernetesUserRefuses(t *testing.T) {
	for _, test := range []struct {
		bearer string
		change
	}{
		{"abcdef", change{"no token", func(*Object) {}, CheckToken}},
		{"abcdeg." + testSecret, change{"another ID", func(*Object) {}, CheckName}},
		{testID + ".0123456789abcdeg", change{"another secret", func(*Object) {}, CheckCredential}},
		{testToken, change{"namespace", func(o *Object) { o.Namespace = "default" }, CheckNamespace}},
		{testToken, change{"deleted", func(o *Object) { o.Deleted = &testNow }, CheckDeleted}},
		{testToken, change{"no data", func(o *Object) { o.Data = nil }, CheckType}},
		{testToken, change{"ID", dropData(keyID), CheckID}},
		{testToken, change{"expired", setData(keyExpiration, "x"), CheckExpired}},
		{testToken, change{"usage", setData(keyAuthentication, "True"), CheckUsage}},
		{testToken, change{"groups", setData(keyGroups, "x"), CheckGroups}},
	} {
		o := goodObject(t)
		test.change.change(o)
		if user, err := InsecureKubernetesUser(o, test.bearer, testNow); !errors.Is(err, test.want) || user != nil || leaks(err.Error()) {
			t.Errorf("%s: %v, %v, want %v", test.name, user, err, test.want)
		}
	}
	if _, err := InsecureKubernetesUser(nil, testToken, testNow); !errors.Is(err, CheckName) {
		t.Error(err)
	}
	if InsecureKubernetesSigns(nil, testNow) || !InsecureKubernetesExpired(nil, testNow) {
		t.Error("no Secret is good for something")
	}
}
