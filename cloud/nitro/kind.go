package nitro

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/refusal"
)

// Provider is the name of this kind of evidence in signer names and, followed by "/v1", in the
// block KUBELET AUTHENTICATOR ATTESTATION PROVIDER.
const Provider = "nitro"

// userData is the user_data of every document of this kind, so a document that was made for
// another purpose is not accepted.
const userData = "nodeattest/nitro/v1"

// Checks on the contents of a document of this kind.
const (
	// checkNonce: the nonce is not 32 bytes long.
	checkNonce refusal.Check = "nitro-document-nonce"
	// checkUserData: the user data is not [userData], or there is a public key.
	checkUserData refusal.Check = "nitro-document-user-data"
	// checkPCRs: a PCR has a value other than the good ones, or none.
	checkPCRs refusal.Check = "nitro-pcrs"
)

// KindConfig configures the kind.
type KindConfig struct {
	// Verifier verifies the documents. It is required.
	Verifier *Verifier
	// GoodPCRs are sets of values of 48 bytes each by index, 0 to 31 except 16 and 23, which
	// root can reset. A document passes if it has every value of one set: a PCR that is
	// missing from a document never passes. PCRs 0 to 7 as they are after a reset, zeros or
	// ones, are refused: firmware measures at least a separator into each. Nil means no check:
	// then whatever the instance has booted may join, and an Authorizer finds the values in the
	// [Document] in Result.Details. AWS' tool nitro-tpm-pcr-compute prints values 4, 7 and 12 of
	// an image; PCRs 0 and 1 change with AWS' firmware.
	GoodPCRs []map[int][]byte
}

// NewKind makes the control plane's side of the kind of evidence. The join holds the
// inventory against the machine's identity: if the machine's provider ID there is one of a cloud, it
// must be aws:///<zone>/<instance ID> with the document's instance and a zone of its region, or none.
// The error matches [refusal.CheckConfig] and names the field.
func NewKind(config KindConfig) (*document.Kind, error) {
	if config.Verifier == nil {
		return nil, refusal.Config("Verifier", "", "one")
	}
	if config.GoodPCRs != nil && len(config.GoodPCRs) == 0 {
		return nil, refusal.Config("GoodPCRs", "", "at least one set, or nil")
	}
	p := &platform{verifier: config.Verifier}
	for _, set := range config.GoodPCRs {
		if len(set) == 0 {
			return nil, refusal.Config("GoodPCRs", "with an empty set", "values")
		}
		good := map[int][]byte{}
		for index, value := range set {
			if index < 0 || index >= maxPCRs || index == 16 || index == 23 || len(value) != pcrSize {
				return nil, refusal.Config("GoodPCRs", "with "+strconv.Itoa(len(value))+" bytes for PCR "+strconv.Itoa(index), "48 bytes for PCRs 0 to 31 without 16 and 23")
			}
			if index <= 7 && (bytes.Count(value, []byte{0}) == len(value) || bytes.Count(value, []byte{0xff}) == len(value)) {
				return nil, refusal.Config("GoodPCRs", "with PCR "+strconv.Itoa(index)+" as it is after a reset", "the value after firmware's measurements, at least a separator")
			}
			good[index] = bytes.Clone(value)
		}
		p.good = append(p.good, good)
	}
	return document.NewKind(document.KindConfig{Provider: Provider, Identities: []attest.Grammar{Grammar()}, ValueSize: sha256.Size, Platform: p})
}

// platform is the [document.Platform] of NitroTPMs.
type platform struct {
	verifier *Verifier
	good     []map[int][]byte
}

// Read reads a document and verifies nothing.
func (p *platform) Read(data []byte) (*document.Claims, error) {
	return p.claims(parseInsecure(data))
}

// Verify verifies a document.
func (p *platform) Verify(ctx context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	return p.claims(p.verifier.verify(ctx, data, q.Now, q.Budget))
}

// claims returns the claims of a document that was read without an error.
func (p *platform) claims(d *Document, err error) (*document.Claims, error) {
	switch {
	case err != nil:
		return nil, err
	case len(d.Nonce) != sha256.Size:
		return nil, checkNonce.Refuse(strconv.Itoa(len(d.Nonce))+" bytes", strconv.Itoa(sha256.Size))
	case string(d.UserData) != userData:
		return nil, checkUserData.Refuse(refusal.Quote(string(d.UserData)), userData)
	case d.PublicKey != nil:
		return nil, checkUserData.Refuse("a public key", "none")
	}
	if err := p.checkPCRs(d); err != nil {
		return nil, err
	}
	return &document.Claims{Machine: d.Identity(), Value: d.Nonce, Facts: d.facts(), Details: d}, nil
}

// checkPCRs checks that a document has every value of one of the good sets.
func (p *platform) checkPCRs(d *Document) error {
	if p.good == nil {
		return nil
	}
	worst := -1
	for _, set := range p.good {
		n := slices.IndexFunc(slices.Sorted(maps.Keys(set)), func(i int) bool {
			return !bytes.Equal(d.PCRs[i], set[i]) // which is 48 bytes long
		})
		if n < 0 {
			return nil
		}
		worst = slices.Sorted(maps.Keys(set))[n]
	}
	return checkPCRs.Refuse("PCR "+strconv.Itoa(worst)+" "+refusal.OrNothing(hex.EncodeToString(d.PCRs[worst])), "the values of a good set")
}

// facts are further contents of the document, for human readers.
func (d *Document) facts() []attest.Fact {
	facts := []attest.Fact{{Standing: attest.Asserted, Name: "document", Value: "of " + d.ModuleID + " at " + stamp(d.Timestamp)}}
	for _, i := range []int{4, 7, 12} {
		if value := d.PCRs[i]; value != nil {
			facts = append(facts, attest.Fact{Standing: attest.Asserted, Name: "PCR " + strconv.Itoa(i), Value: hex.EncodeToString(value)})
		}
	}
	return facts
}
