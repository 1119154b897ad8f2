package eventlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"slices"
	"unicode/utf16"

	tcg "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkSecureBoot: the log does not give the state of Secure Boot in the way that the firmware
// profile specifies; or Secure Boot is required and is off.
const checkSecureBoot refusal.Check = "secure-boot"

// secureBootPCR is where firmware measures Secure Boot's variables: TCG PC Client
// Platform Firmware Profile 1.06, 3.3.4.8.
const secureBootPCR = 7

const (
	typeSeparator Type = 4
	typeVariable  Type = 0x80000001 // EV_EFI_VARIABLE_DRIVER_CONFIG
)

// globalVariable is EFI_GLOBAL_VARIABLE, 8be4df61-93ca-11d2-aa0d-00e098032b8c, as it is laid
// out in memory: UEFI 2.10, 3.3. Secure Boot's variable has this vendor.
var globalVariable = []byte{0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c}

// SecureBoot is the state of UEFI Secure Boot at the last boot.
type SecureBoot struct {
	// Enabled says that the firmware checked what it started.
	Enabled bool
	// PlatformKeys, ExchangeKeys and PermittedKeys are the certificates of the
	// variables PK, KEK and db.
	PlatformKeys, ExchangeKeys, PermittedKeys []*x509.Certificate
	// PermittedHashes and ForbiddenHashes are the digests of db and dbx.
	PermittedHashes, ForbiddenHashes [][]byte
	// Authorities are the certificates by which something was actually started, including the
	// firmware's own drivers and the boot loader's checks.
	Authorities []*x509.Certificate
	// DMAProtectionDisabled says that the firmware could have kept devices out of memory
	// during boot, but did not.
	DMAProtectionDisabled bool
}

// SecureBoot reads the state of Secure Boot from the events of PCR 7 in one bank, which the
// caller names: in a bank that the firmware does not extend, everything was written by root
// (see [Policy]). Every error is a [*refusal.Error]: if the quote does not cover PCR 7 of that
// bank, if the log does not have exactly one variable SecureBoot of the right vendor before
// the one separator, or if there is an event that does not belong, the state is unknown and
// not "off".
func (l *Log) SecureBoot(bank tpm2.TPMAlgID) (*SecureBoot, error) {
	events, err := l.EventsOf(bank, secureBootPCR)
	if err != nil {
		return nil, err
	}
	if err := checkSecureBootEvents(events); err != nil {
		return nil, err
	}
	state, err := guarded(tcg.ParseSecurebootState, rehashed(events))
	if err != nil {
		return nil, &refusal.Error{Check: checkSecureBoot, Err: err}
	}
	return &SecureBoot{
		Enabled:               state.Enabled,
		PlatformKeys:          pointers(state.PlatformKeys),
		ExchangeKeys:          pointers(state.ExchangeKeys),
		PermittedKeys:         pointers(state.PermittedKeys),
		PermittedHashes:       state.PermittedHashes,
		ForbiddenHashes:       state.ForbiddenHashes,
		Authorities:           append(pointers(state.PreSeparatorAuthority), pointers(state.PostSeparatorAuthority)...),
		DMAProtectionDisabled: state.DMAProtectionDisabled,
	}, nil
}

// checkSecureBootEvents checks what go-attestation takes on trust: that the variable and the
// separator are there at all, and whose variable it is. go-attestation itself checks that they
// are there once and in order.
func checkSecureBootEvents(events []Event) error {
	var variables, separators int
	for n := range events {
		e := &events[n]
		switch e.UntrustedType {
		case typeSeparator:
			separators++
		case typeVariable:
			data, err := e.Data()
			if err != nil {
				return &refusal.Error{Check: checkSecureBoot, Err: err}
			}
			vendor, name, value, ok := readVariable(data)
			if !ok || name != "SecureBoot" {
				continue
			}
			if !bytes.Equal(vendor, globalVariable) {
				return tpmwire.Refuse(checkSecureBoot, fmt.Sprintf("a variable SecureBoot of vendor %x", vendor), "of EFI_GLOBAL_VARIABLE")
			}
			if len(value) != 1 || value[0] > 1 {
				return tpmwire.Refuse(checkSecureBoot, fmt.Sprintf("SecureBoot = %x", value), "00 or 01")
			}
			variables++
		}
	}
	if variables != 1 || separators != 1 {
		return tpmwire.Refuse(checkSecureBoot, fmt.Sprintf("%d variables SecureBoot and %d separators in PCR 7", variables, separators),
			"one of each")
	}
	return nil
}

// readVariable reads a UEFI_VARIABLE_DATA: vendor, two lengths, name in UTF-16, value.
func readVariable(b []byte) (vendor []byte, name string, value []byte, ok bool) {
	if len(b) < 32 {
		return nil, "", nil, false
	}
	vendor = b[:16]
	characters, size := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	b = b[32:]
	if characters > uint64(len(b))/2 || size != uint64(len(b))-2*characters {
		return nil, "", nil, false
	}
	units := make([]uint16, characters)
	for n := range units {
		units[n] = binary.LittleEndian.Uint16(b[2*n:])
	}
	return vendor, string(utf16.Decode(units)), b[2*characters:], true
}

// rehashed are the events as go-attestation reads them. It computes digests only with SHA-1
// and SHA-256: for the longer banks it gets those of SHA-256, over the very bytes that the
// replayed digest was found to cover.
func rehashed(events []Event) []tcg.Event {
	given := make([]tcg.Event, len(events))
	for n := range events {
		e := &events[n]
		given[n] = tcg.Event{Index: e.PCR, Type: tcg.EventType(e.UntrustedType), Data: e.UntrustedData, Digest: e.Digest}
		if e.Bank == tpm2.TPMAlgSHA384 || e.Bank == tpm2.TPMAlgSHA512 {
			given[n].Digest = rehash(e)
		}
	}
	return given
}

// rehash is the SHA-256 of an event's data if its digest covers them, with or without their
// last byte (an old shim's logs have one too many), otherwise zeros.
func rehash(e *Event) []byte {
	for _, data := range [][]byte{e.UntrustedData, e.UntrustedData[:max(0, len(e.UntrustedData)-1)]} {
		if bytes.Equal(digest(e.Bank, data), e.Digest) {
			return digest(tpm2.TPMAlgSHA256, data)
		}
	}
	return make([]byte, sha256.Size)
}

func pointers(certificates []x509.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	for n := range certificates {
		out = append(out, &certificates[n])
	}
	return out
}

// checkUnextended: nothing was measured into a PCR of the bank that the policy names, so the
// firmware does not serve that bank and anyone who is root could fill it in.
const checkUnextended refusal.Check = "event-log-unextended"

// Policy is a [tpm.QuotePolicy] over event logs. Whatever it asks for, the log must explain
// the quote: see [Replay]. The zero value asks for nothing, and refuses.
//
// The policy, not the node, says which bank and which PCRs decide: a TPM has banks that the
// firmware may not extend, and into such a bank root can measure the boot of its choice
// (CVE-2021-42299). It is for you to know that the firmware of your machines extends Bank; a
// bank that nobody has extended yet is refused.
type Policy struct {
	// Bank is the bank that decides. Zero is SHA-256; the others are tpm2.TPMAlgSHA384
	// and tpm2.TPMAlgSHA512.
	Bank tpm2.TPMAlgID
	// PCRs are the PCRs of Bank, 0 to 23, that the quote must cover, the log must explain and
	// something must have been measured into. Nil means 0 to 7, into each of which firmware
	// measures at least a separator (TCG PC Client Platform Firmware Profile 1.06, 3.3.4). PCR
	// 7 must be among them for RequireSecureBoot.
	PCRs []int
	// RequireSecureBoot refuses machines whose log does not show that Secure Boot is on, in
	// Bank: see [Log.SecureBoot].
	RequireSecureBoot bool
	// Predicate decides about the replayed log; nil leaves that out. It reads events through
	// [Log.EventsOf], which refuses what the quote does not cover, and their data through
	// [Event.Data].
	Predicate func(ctx context.Context, l *Log) error
	// Options are those of [Replay].
	Options Options
}

// CheckQuote replays the log of m and checks what the policy requires. A refusal is a
// [*refusal.Error], or what Predicate returned.
func (p *Policy) CheckQuote(ctx context.Context, m *tpm.Measured) error {
	bank, pcrs, err := p.wanted()
	if err != nil {
		return err
	}
	m = typednil.OrZero(m)
	l, err := Replay(m.EventLog, m.Quote, &p.Options)
	if err != nil {
		return err
	}
	for _, index := range pcrs {
		events, err := l.EventsOf(bank, index)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return tpmwire.Refuse(checkUnextended, fmt.Sprintf("nothing measured into PCR %d of the bank of %s", index, tpmwire.HashOf(bank)),
				"what firmware measures")
		}
	}
	if p.RequireSecureBoot {
		state, err := l.SecureBoot(bank)
		if err != nil {
			return err
		}
		if !state.Enabled {
			return tpmwire.Refuse(checkSecureBoot, "Secure Boot is off", "on")
		}
	}
	if p.Predicate == nil {
		return nil
	}
	return p.Predicate(ctx, l)
}

// Validate returns an error with [tpm.CheckQuotePolicy] for a policy that can decide nothing:
// CheckQuote would return it for every machine.
func (p *Policy) Validate() error {
	_, _, err := p.wanted()
	return err
}

// unusable is the error about a policy, which is no fault of a machine's.
func unusable(got, want string) error {
	return &refusal.Error{Check: tpm.CheckQuotePolicy, Got: got, Want: want, Err: refusal.ErrRetry}
}

// wanted returns the bank and the PCRs that decide.
func (p *Policy) wanted() (tpm2.TPMAlgID, []int, error) {
	if p == nil || !p.RequireSecureBoot && p.Predicate == nil {
		return 0, nil, unusable("nothing asked", "RequireSecureBoot or a Predicate")
	}
	bank, pcrs := p.Bank, p.PCRs
	switch bank {
	case 0:
		bank = tpm2.TPMAlgSHA256
	case tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA384, tpm2.TPMAlgSHA512:
	default:
		return 0, nil, unusable(fmt.Sprintf("bank %#x", uint16(bank)), "SHA-256, SHA-384 or SHA-512")
	}
	if pcrs == nil {
		pcrs = []int{0, 1, 2, 3, 4, 5, 6, secureBootPCR}
	}
	switch {
	case len(pcrs) == 0:
		return 0, nil, unusable("no PCRs", "at least one, or nil for 0 to 7")
	case p.RequireSecureBoot && !slices.Contains(pcrs, secureBootPCR):
		return 0, nil, unusable(fmt.Sprintf("RequireSecureBoot with PCRs %v", pcrs), "PCR 7 among them")
	}
	return bank, pcrs, nil
}
