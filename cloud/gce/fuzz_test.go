package gce_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/jws"
)

// FuzzVerifyToken holds the verification against a second one, with encoding/json and
// crypto/rsa, under a key that signs whatever the fuzzer writes as claims: an accepted token
// says the same to both, and whatever either is given, neither panics.
func FuzzVerifyToken(f *testing.F) {
	cloud := google(f)
	good, err := cloud.Token(instance(1), audience)
	if err != nil {
		f.Fatal(err)
	}
	claims := marshal(f, payload(f, good))
	head, _, _ := strings.Cut(good, ".")
	f.Add([]byte(good), false)
	f.Add(claims, true)
	f.Add([]byte(strings.Replace(string(claims), `"zone"`, `"license_id":["1"],"zone"`, 1)), true)
	f.Add([]byte(head+".e30."), false)
	f.Add([]byte("{}"), true)
	f.Add([]byte(strings.Replace(string(claims), `"aud"`, `"AUD":"x","aud"`, 1)), true)
	if dir := os.Getenv("NODEATTEST_CORPUS"); dir != "" {
		names, err := filepath.Glob(filepath.Join(dir, "cloud", "gce", "*.jwt"))
		if err != nil || len(names) == 0 {
			f.Fatal("no recorded tokens: ", err)
		}
		for _, name := range names {
			token, err := jws.Parse(strings.TrimSpace(string(readFile(f, name))))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(token.UnverifiedPayload(), true)
		}
	}
	c := trust(f, cloud)
	f.Fuzz(func(t *testing.T, data []byte, sign bool) {
		token := string(data)
		if sign {
			var err error
			if token, err = cloud.Sign(data); err != nil {
				return // too long
			}
		}
		d, err := gce.VerifyToken(t.Context(), token, audience, c, now)
		if (d == nil) != (err != nil) {
			t.Fatal(d, err)
		}
		if err != nil {
			return
		}
		same, err := verifyNaively(token, cloud.Keys(), now)
		if err != nil {
			t.Fatalf("refused by the other: %v\n%s", err, token)
		}
		if d.Machine() != same.Machine() || d.Instance != same.Instance || !reflect.DeepEqual(d.Licenses, same.Licenses) && len(d.Licenses)+len(same.Licenses) > 0 ||
			d.Audience != same.Audience || d.Subject != same.Subject || !d.IssuedAt.Equal(same.IssuedAt) || !d.Expires.Equal(same.Expires) {
			t.Errorf("%+v\n%+v", d, same)
		}
		if d.Expires.Sub(d.IssuedAt) > time.Hour || !now.Before(d.Expires) || d.Audience != audience {
			t.Errorf("%+v", d)
		}
	})
}
