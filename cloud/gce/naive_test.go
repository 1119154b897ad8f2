package gce_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
)

// This file verifies tokens a second time, as plainly as can be, with the standard library
// alone.

var errNaive = naive(errors.New("refused"))

func naive(err error) error { return &attest.Error{Check: "naive", Err: err} }

// readNaively reads a token and verifies nothing.
func readNaively(token string) (*gce.Details, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errNaive
	}
	payload, err := base64.RawURLEncoding.Strict().DecodeString(parts[1])
	if err != nil {
		return nil, naive(err)
	}
	var c struct {
		Aud, Iss, Sub, Azp, Email string
		Iat, Exp                  int64
		Google                    struct {
			Engine struct {
				Created  int64    `json:"instance_creation_timestamp"`
				ID       string   `json:"instance_id"`
				Name     string   `json:"instance_name"`
				Project  string   `json:"project_id"`
				Number   uint64   `json:"project_number"`
				Licenses []string `json:"license_id"`
				Zone     string
			} `json:"compute_engine"`
		}
	}
	if err := json.Unmarshal(payload, &c); err != nil {
		return nil, naive(err)
	}
	e := c.Google.Engine
	id, err := strconv.ParseUint(e.ID, 10, 64)
	if err != nil {
		return nil, naive(err)
	}
	if c.Iss != gce.Issuer || c.Azp != c.Sub {
		return nil, errNaive
	}
	return &gce.Details{Instance: oid.GCEInstance{Zone: e.Zone, ProjectNumber: e.Number, ProjectID: e.Project, InstanceID: id, InstanceName: e.Name},
		Created: time.Unix(e.Created, 0).UTC(), Licenses: e.Licenses, Subject: c.Sub, Email: c.Email, Audience: c.Aud,
		IssuedAt: time.Unix(c.Iat, 0).UTC(), Expires: time.Unix(c.Exp, 0).UTC()}, nil
}

// verifyNaively verifies a token, but for the checks that it is to forget.
func verifyNaively(token string, keys []*jws.Key, now time.Time, forget ...string) (*gce.Details, error) {
	d, err := readNaively(token)
	if err != nil {
		return nil, naive(err)
	}
	end := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.Strict().DecodeString(token[end+1:])
	if err != nil {
		return nil, naive(err)
	}
	header, err := base64.RawURLEncoding.Strict().DecodeString(token[:strings.IndexByte(token, '.')])
	if err != nil {
		return nil, naive(err)
	}
	var h struct{ Alg, Kid, Typ string }
	if err := json.Unmarshal(header, &h); err != nil {
		return nil, naive(err)
	}
	digest := sha256.Sum256([]byte(token[:end]))
	signed := slices.ContainsFunc(keys, func(k *jws.Key) bool {
		return k.KeyID() == h.Kid && rsa.VerifyPKCS1v15(k.Public().(*rsa.PublicKey), crypto.SHA256, digest[:], signature) == nil
	})
	for name, ok := range map[string]bool{
		"signature": signed && h.Alg == "RS256" && h.Typ == "JWT",
		"expired":   now.Before(d.Expires),
		"future":    !d.IssuedAt.After(now.Add(time.Minute)),
	} {
		if !ok && !slices.Contains(forget, name) {
			return nil, errNaive
		}
	}
	return d, nil
}

func valueOf(audience string) []byte {
	value, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(audience, "nodeattest:"))
	if err != nil {
		panic(err)
	}
	return value
}

func attestKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
