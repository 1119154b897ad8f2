package goattestation

import (
	"bytes"
	"testing"

	goattest "github.com/google/go-attestation/attest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// sized is n bytes after their number.
func sized(n int) []byte { return append([]byte{byte(n >> 8), byte(n)}, bytes.Repeat([]byte{7}, n)...) }

// A credential is the same there and back, up to the largest sizes; a size that is not that of
// the rest is refused. TestCredentials opens real ones.
func TestCredentialThereAndBack(t *testing.T) {
	for name, c := range map[string]struct {
		of   goattest.EncryptedCredential
		want refusal.Check
	}{
		"usual":            {goattest.EncryptedCredential{Credential: sized(68), Secret: sized(256)}, ""},
		"least":            {goattest.EncryptedCredential{Credential: sized(1), Secret: sized(1)}, ""},
		"most":             {goattest.EncryptedCredential{Credential: sized(256), Secret: sized(1024)}, ""},
		"nothing":          {goattest.EncryptedCredential{}, checkValue},
		"no secret":        {goattest.EncryptedCredential{Credential: sized(68)}, checkValue},
		"one byte":         {goattest.EncryptedCredential{Credential: []byte{0}, Secret: sized(256)}, checkValue},
		"empty":            {goattest.EncryptedCredential{Credential: sized(0), Secret: sized(256)}, checkValue},
		"empty secret":     {goattest.EncryptedCredential{Credential: sized(68), Secret: sized(0)}, checkValue},
		"too long":         {goattest.EncryptedCredential{Credential: sized(257), Secret: sized(256)}, checkValue},
		"a longer secret":  {goattest.EncryptedCredential{Credential: sized(68), Secret: sized(1025)}, checkValue},
		"absurd":           {goattest.EncryptedCredential{Credential: sized(68), Secret: make([]byte, 1<<20)}, checkValue},
		"cut":              {goattest.EncryptedCredential{Credential: sized(68)[:69], Secret: sized(256)}, checkValue},
		"a byte more":      {goattest.EncryptedCredential{Credential: sized(68), Secret: append(sized(256), 0)}, checkValue},
		"without its size": {goattest.EncryptedCredential{Credential: sized(68)[2:], Secret: sized(256)}, checkValue},
	} {
		t.Log(name)
		here, err := Credential(c.of)
		if c.want != "" {
			tpmlab.ExpectCheck(t, err, c.want)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		same(t, c.of, testkit.Must(EncryptedCredential(here)))
	}
	for _, c := range []*attest.Credential{nil, {}, {IDObject: sized(1)}, {EncryptedSecret: sized(1)},
		{IDObject: make([]byte, 257), EncryptedSecret: sized(1)}, {IDObject: sized(1), EncryptedSecret: make([]byte, 1025)}} {
		_, err := EncryptedCredential(c)
		tpmlab.ExpectCheck(t, err, checkValue)
	}
}

func FuzzCredential(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add(sized(68), sized(256))
	f.Add(sized(68), sized(1024))
	f.Add(sized(0), []byte{0})
	f.Fuzz(func(t *testing.T, credential, secret []byte) {
		there := goattest.EncryptedCredential{Credential: credential, Secret: secret}
		here, err := Credential(there)
		if err != nil {
			return
		}
		same(t, there, testkit.Must(EncryptedCredential(here)))
	})
}
