package explain

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
)

// A tool reads what the worked example's messages say, with a kind that trusts nobody.
func TestRead(t *testing.T) {
	e := load(t)
	read := func(text []byte, signer string) (*Reading, error) {
		r := &csr.Request{Spec: csr.Spec{Request: text, SignerName: signer}}
		return Read(new(tpm.Kind), r.Parsed())
	}
	hello, err := read(e.hello, e.ChallengeSigner)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := read(e.answer, e.SignerName)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Reading{hello, answer} {
		key := sha256.Sum256(m.MachineKey)
		if m.Road != attest.RoadAK || m.ClusterID != e.ClusterID || m.TargetSigner != e.SignerName || m.Machine != "" || hex.EncodeToString(key[:]) != e.MachineKey {
			t.Errorf("got %+v", m)
		}
	}
	if hello.Stage != attest.StageHello || hello.Echo != nil || answer.Stage != attest.StageAnswer || answer.Echo == nil {
		t.Fatalf("stages: %+v, %+v", hello, answer)
	}
	echo := answer.Echo
	if hex.EncodeToString(echo.KeyID) != e.RingKey.ID || echo.IssuedAt.Unix() != e.IssuedAt || echo.NotAfter.Unix() != e.NotAfter || echo.Requester != e.Requester ||
		echo.ExpirationSeconds != e.ExpirationSeconds || hex.EncodeToString(echo.MachineKeyHash[:]) != e.MachineKey || hex.EncodeToString(echo.RequestHash[:]) != e.RequestHash {
		t.Errorf("echo: %+v", echo)
	}
}

// What is no message of the kind is refused by the name of its fault.
func TestReadRefuses(t *testing.T) {
	e := load(t)
	bundle, err := csr.Parse(e.hello)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(change func(*csr.Bundle)) []byte {
		b := *bundle
		change(&b)
		text, err := b.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, row := range map[string]struct {
		text   []byte
		signer string
		want   error
	}{
		"a hello where an answer is filed": {e.hello, e.SignerName, attest.CheckStatements},
		"an answer where hellos are":       {e.answer, e.ChallengeSigner, attest.CheckStatements},
		"another kind's":                   {changed(func(b *csr.Bundle) { b.Provider = "gce/v1" }), e.ChallengeSigner, attest.CheckProvider},
		"no evidence":                      {changed(func(b *csr.Bundle) { b.Provider, b.Data = "", nil }), e.ChallengeSigner, attest.CheckProvider},
		"evidence that is cut off":         {changed(func(b *csr.Bundle) { b.Data = b.Data[:len(b.Data)-1] }), e.ChallengeSigner, attest.CheckEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			r := &csr.Request{Spec: csr.Spec{Request: row.text, SignerName: row.signer}}
			if m, err := Read(new(tpm.Kind), r.Parsed()); m != nil || !errors.Is(err, row.want) {
				t.Errorf("got %+v, %v, want %v", m, err, row.want)
			}
		})
	}
}
