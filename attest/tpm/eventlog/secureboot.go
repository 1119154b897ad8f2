package eventlog

import (
	"bytes"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/refusal"
)

// CheckSecureBoot: the log does not give the state of Secure Boot in the way that the firmware
// profile specifies; or Secure Boot is required and is off.
const CheckSecureBoot refusal.Check = "secure-boot"

// secureBootPCR is where firmware measures Secure Boot's variables: TCG PC Client
// Platform Firmware Profile 1.06, 3.3.4.8.
const secureBootPCR = 7

// globalVariable is EFI_GLOBAL_VARIABLE, 8be4df61-93ca-11d2-aa0d-00e098032b8c, as it is laid
// out in memory: UEFI 2.10, 3.3. Secure Boot's variable has this vendor.
var globalVariable = []byte{0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c}

// shimLock is SHIM_LOCK_GUID, 605dab50-e046-4300-abb6-3dd810dd8b23, the vendor of shim's
// variables.
var shimLock = []byte{0x50, 0xab, 0x5d, 0x60, 0x46, 0xe0, 0x00, 0x43, 0xab, 0xb6, 0x3d, 0xd8, 0x10, 0xdd, 0x8b, 0x23}

const (
	secureBootName = "SecureBoot"
	shimStateName  = "MokSBState" // 1 lets shim start unsigned programs
)

// Texts that firmware measures into PCR 7: profile 1.06, 10.4.1 and 3.3.4.8.
const (
	debugMode             = "UEFI Debug Mode"
	dmaProtectionDisabled = "DMA Protection Disabled"
)

// SecureBoot is the state of UEFI Secure Boot at the last boot.
type SecureBoot struct {
	// Enabled says that the firmware checked each program that it started.
	Enabled bool
	// PlatformKeys, ExchangeKeys and PermittedKeys are the certificates of the
	// variables PK, KEK and db.
	PlatformKeys, ExchangeKeys, PermittedKeys []*x509.Certificate
	// PermittedHashes and ForbiddenHashes are the SHA-256 digests of db and dbx.
	PermittedHashes, ForbiddenHashes [][]byte
	// Unread lists which of the variables PK, KEK, db and dbx hold more than the fields above: keys
	// and digests of other types, certificates that crypto/x509 refuses, or certificates in dbx. An
	// attacker gains where a decision rests on the absence of an entry and the entry is not named.
	Unread []string
	// Authorities are the certificates by which something was actually started, including the
	// firmware's own drivers and the boot loader's checks. A program started by its digest has
	// none. Root can add others later, as to every PCR, but can take none away.
	Authorities []*x509.Certificate
	// DMAProtectionDisabled says that the firmware could have kept devices out of memory
	// during boot, but did not.
	DMAProtectionDisabled bool
}

// SecureBoot reads the state of Secure Boot from the events of PCR 7 in one bank, which the
// caller names: in a bank that the firmware does not extend, everything was written by root
// (see [BootPolicy]). Every error is a [*refusal.Error]: the quote does not cover PCR 7 of that
// bank; the log does not have exactly one variable SecureBoot of the right vendor, before
// exactly one separator; an event's digest is not of its data;
// a debugger was there; shim was told to check nothing; or Secure Boot is on and no key is known, or none was used. Then the
// state is unknown and not "off". A machine without the variable logs it without a value, and
// its Secure Boot is off.
//
// The types of events decide nothing, because no digest covers them. Firmware measures the
// separator before it starts the system's boot loader, so the events before the first separator are
// the firmware's own. An event that is not understood is passed over if its digest covers its data,
// and cannot be SecureBoot or a separator: these are known by their digests. Events after the
// separator have no part in the state, but must not repeat it, and must be shown: there shim says
// whether it checks anything.
func (l *Log) SecureBoot(bank tpm2.TPMAlgID) (*SecureBoot, error) {
	events, err := l.EventsOf(bank, secureBootPCR)
	if err != nil {
		return nil, err
	}
	r := stateReader{known: knownEvents(bank), set: make(map[string]bool)}
	for n := range events {
		if err := r.read(n, &events[n]); err != nil {
			return nil, err
		}
	}
	return r.result()
}

// stateReader reads the events of PCR 7, in order.
type stateReader struct {
	known     map[string][]byte // the data of measurements, by digest
	state     SecureBoot
	separated bool            // the separator was there
	found     bool            // SecureBoot was there
	set       map[string]bool // whether each of PK, KEK, db and dbx that was logged has a value
	authority bool            // a key or a digest was used
}

// knownEvents are recognized by their digests, whatever type and data the log gives them.
func knownEvents(bank tpm2.TPMAlgID) map[string][]byte {
	known := make(map[string][]byte)
	for _, data := range [][]byte{
		{0, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff}, {1, 0, 0, 0}, {0, 0, 0, 1}, // separators
		marshalVariable(globalVariable, secureBootName), marshalVariable(globalVariable, secureBootName, 0), marshalVariable(globalVariable, secureBootName, 1),
		marshalVariable(shimLock, shimStateName, 1), append(marshalVariable(shimLock, shimStateName, 1), 0, 0, 0, 0, 0), // by old versions
		[]byte(debugMode), []byte(debugMode + "\x00"), []byte(dmaProtectionDisabled), []byte(dmaProtectionDisabled + "\x00"),
	} {
		known[string(digest(bank, data))] = data
	}
	return known
}

// marshalVariable is the UEFI_VARIABLE_DATA of a variable with a name in ASCII: profile 1.06,
// 10.2.6.
func marshalVariable(vendor []byte, name string, value ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(slices.Clone(vendor), uint64(len(name)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	for _, c := range []byte(name) {
		b = append(b, c, 0)
	}
	return append(b, value...)
}

// measured returns the bytes whose digest the event has: its data, the data without the last byte
// (old versions of shim log one too many), or a known event.
func (r *stateReader) measured(e *Event) (data []byte, covered bool) {
	for _, data := range [][]byte{e.UntrustedData, e.UntrustedData[:max(0, len(e.UntrustedData)-1)]} {
		if bytes.Equal(digest(e.Bank, data), e.Digest) {
			return data, true
		}
	}
	return r.known[string(e.Digest)], false
}

func (r *stateReader) read(n int, e *Event) error {
	data, covered := r.measured(e)
	v, isVariable := readVariable(data)
	if !covered && (isVariable && v.more == 0 || data == nil) {
		return CheckSecureBoot.Refuse(fmt.Sprintf("event %d of PCR 7, %s, with data that do not have its digest", n, e.UntrustedType),
			"a digest of the data in every event of PCR 7; firmware or a boot loader that logs something else takes an update")
	}
	switch text := strings.TrimSuffix(string(data), "\x00"); {
	case len(data) == 4: // a separator: profile 1.06, 10.4.1
		return r.separator(binary.LittleEndian.Uint32(data))
	case text == debugMode:
		return CheckSecureBoot.Refuse("a debugger of the firmware, present during boot", "none")
	case text == dmaProtectionDisabled:
		r.state.DMAProtectionDisabled = true
	}
	if isVariable {
		return r.variable(v)
	}
	return nil
}

func (r *stateReader) separator(value uint32) error {
	switch {
	case r.separated:
		return CheckSecureBoot.Refuse("a second separator in PCR 7", "one")
	case value != 0 && value != 1<<32-1:
		return CheckSecureBoot.Refuse(fmt.Sprintf("the separator %08x, by which the firmware reports an error", value), "00000000 or ffffffff")
	}
	r.separated = true
	return nil
}

// variableData is a UEFI_VARIABLE_DATA.
type variableData struct {
	vendor []byte
	name   string
	value  []byte
	more   int // bytes behind it: old versions of shim log some
}

// readVariable reads vendor, two lengths, name in UTF-16, and value.
func readVariable(b []byte) (v variableData, ok bool) {
	if len(b) < 32 {
		return v, false
	}
	characters, size := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	if most := uint64(len(b) - 32); characters > most/2 || size > most-2*characters {
		return v, false
	}
	units := make([]uint16, characters)
	if _, err := binary.Decode(b[32:], binary.LittleEndian, units); err != nil {
		return v, false
	}
	rest := b[32+2*characters:]
	return variableData{vendor: b[:16], name: string(utf16.Decode(units)), value: rest[:size], more: len(rest) - int(size)}, true
}

func (r *stateReader) variable(v variableData) error {
	if strings.EqualFold(strings.Trim(v.name, "\x00"), secureBootName) {
		return r.secureBoot(v)
	}
	if bytes.Equal(v.vendor, shimLock) && v.name == shimStateName && len(bytes.Trim(v.value, "\x00")) > 0 {
		return CheckSecureBoot.Refuse(shimStateName+" = "+refusal.Hex(v.value)+", so that shim checked nothing",
			"00 or no such variable: mokutil --enable-validation, and a boot, at the machine")
	}
	lists, ok := readSignatures(v.value)
	_, seen := r.set[v.name]
	switch {
	case v.name == "PK" || v.name == "KEK" || v.name == "dbx" || v.name == "db" && (ok || !r.separated && !seen):
		if !r.separated { // behind it, one that was updated since
			r.set[v.name] = r.set[v.name] || len(v.value) > 0
			r.keep(v.name, lists, ok)
		}
		return nil
	case v.name != "db" && !r.separated: // one that authorizes nothing
		return nil
	}
	r.authority = true
	if c := authority(v.value); c != nil {
		r.state.Authorities = append(r.state.Authorities, c)
	}
	return nil
}

func (r *stateReader) secureBoot(v variableData) error {
	switch {
	case v.more > 0:
		return CheckSecureBoot.Refuse(fmt.Sprintf("a variable SecureBoot and %d bytes more", v.more), "the variable and nothing else")
	case !bytes.Equal(v.vendor, globalVariable) || v.name != secureBootName:
		return CheckSecureBoot.Refuse(fmt.Sprintf("a variable %q of vendor %x", v.name, v.vendor), "SecureBoot of EFI_GLOBAL_VARIABLE")
	case r.separated:
		return CheckSecureBoot.Refuse("a variable SecureBoot behind the separator of PCR 7", "all variables before it")
	case r.found:
		return CheckSecureBoot.Refuse("a second variable SecureBoot", "one")
	case len(v.value) > 1 || len(v.value) == 1 && v.value[0] > 1:
		return CheckSecureBoot.Refuse("SecureBoot = "+refusal.Hex(v.value), "00 or 01, or no value on a machine without Secure Boot")
	}
	r.found, r.state.Enabled = true, len(v.value) == 1 && v.value[0] == 1
	return nil
}

// keep stores a variable's content; ok is false if that is not a list of signatures.
func (r *stateReader) keep(name string, lists signatures, ok bool) {
	s := &r.state
	switch name {
	case "PK":
		s.PlatformKeys = append(s.PlatformKeys, lists.certificates...)
	case "KEK":
		s.ExchangeKeys = append(s.ExchangeKeys, lists.certificates...)
	case "db":
		s.PermittedKeys = append(s.PermittedKeys, lists.certificates...)
		s.PermittedHashes = append(s.PermittedHashes, lists.hashes...)
	case "dbx":
		s.ForbiddenHashes = append(s.ForbiddenHashes, lists.hashes...)
	}
	more := lists.unread || name == "dbx" && lists.certificates != nil || (name == "PK" || name == "KEK") && lists.hashes != nil
	if (more || !ok) && !slices.Contains(s.Unread, name) {
		s.Unread = append(s.Unread, name)
	}
}

// result is the state, once all events were read.
func (r *stateReader) result() (*SecureBoot, error) {
	switch {
	case !r.separated:
		return nil, CheckSecureBoot.Refuse("no separator in PCR 7", "one, behind the variables of Secure Boot")
	case !r.found:
		return nil, CheckSecureBoot.Refuse("no variable SecureBoot before the separator of PCR 7",
			"one: firmware measures it that started the machine by UEFI, not in a legacy mode")
	case !r.state.Enabled:
		return &r.state, nil
	case !r.authority:
		return nil, CheckSecureBoot.Refuse("Secure Boot on, and no program that a key allowed to start", "the key of at least one")
	}
	for _, name := range []string{"PK", "KEK", "db"} {
		if !r.set[name] {
			return nil, CheckSecureBoot.Refuse("Secure Boot on, and no value of "+name, "the keys that it checks with")
		}
	}
	return &r.state, nil
}
