package tpmlab

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"unicode/utf16"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// A BootEvent is a measurement of a boot: the digest of Measured, or of Data if that is empty. Type is that of
// the TCG PC Client Platform Firmware Profile 1.06, 10.4.1.
type BootEvent struct {
	PCR            int
	Type           uint32
	Data, Measured string
}

// noAction is the type of an event that extends no PCR: profile 1.06, 10.4.1.
const noAction = 3

// BootEvents are the measurements of a machine with UEFI into PCRs 0 to 7: section 3.3.4. Kernel is the
// contents of the program that it starts.
func BootEvents(secureBoot bool, kernel string) []BootEvent {
	const separator, variable, application, authority, action = 4, 0x80000001, 0x80000003, 0x800000e0, 0x80000007
	const zeros, exit = "\x00\x00\x00\x00", "Exit Boot Services "
	global, database := "\x61\xdf\xe4\x8b\xca\x93\xd2\x11\xaa\x0d\x00\xe0\x98\x03\x2b\x8c", "\xcb\xb2\x19\xd7\x3a\x3d\x96\x45\xa3\xbc\xda\xd0\x0e\x67\x65\x6f"
	state := "\x00"
	if secureBoot {
		state = "\x01"
	}
	events := []BootEvent{
		{0, noAction, "StartupLocality\x00\x00", ""}, {0, 8, "firmware 1.0", ""}, {1, 0x8000000a, "settings", ""},
		{7, variable, uefiVariable(global, "SecureBoot", state), ""}, {7, variable, uefiVariable(global, "PK", hashList()), ""},
		{7, variable, uefiVariable(global, "KEK", hashList()), ""}, {7, variable, uefiVariable(database, "db", hashList()), ""},
		{7, variable, uefiVariable(database, "dbx", ""), ""},
	}
	for pcr := range 8 {
		events = append(events, BootEvent{pcr, separator, zeros, ""})
	}
	if secureBoot {
		events = append(events, BootEvent{7, authority, uefiVariable(database, "db", hashList()[28:]), ""})
	}
	return append(events, BootEvent{4, application, "path of the kernel", kernel},
		BootEvent{5, action, exit + "Invocation", ""}, BootEvent{5, action, exit + "Returned with Success", ""})
}

// uefiVariable is a UEFI_VARIABLE_DATA: profile 1.06, 10.2.6.
func uefiVariable(vendor, name, value string) string {
	units := utf16.Encode([]rune(name))
	b := binary.LittleEndian.AppendUint64([]byte(vendor), uint64(len(units)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	for _, u := range units {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return string(append(b, value...))
}

// hashList is an EFI_SIGNATURE_LIST of one SHA-256 digest: UEFI 2.10, 32.4.1.
func hashList() string {
	b := []byte{0x26, 0x16, 0xc4, 0xc1, 0x4c, 0x50, 0x92, 0x40, 0xac, 0xa9, 0x41, 0xf9, 0x36, 0x93, 0x43, 0x28}
	for _, size := range []uint32{28 + 48, 0, 48} {
		b = binary.LittleEndian.AppendUint32(b, size)
	}
	return string(append(b, make([]byte, 48)...))
}

func (e *BootEvent) digest() []byte {
	sum := sha256.Sum256([]byte(cmp.Or(e.Measured, e.Data)))
	return sum[:]
}

// EventLog writes events as firmware does, in the crypto-agile format of section 10.2 with digests of SHA-256.
func EventLog(events []BootEvent) []byte {
	le := binary.LittleEndian
	id := append([]byte("Spec ID Event03\x00"), 0, 0, 0, 0, 0, 2, 0, 2, 1, 0, 0, 0)
	id = append(le.AppendUint16(le.AppendUint16(id, uint16(tpm2.TPMAlgSHA256)), sha256.Size), 0)
	log := le.AppendUint32(le.AppendUint32(nil, 0), noAction)
	log = append(log, make([]byte, 20)...)
	log = append(le.AppendUint32(log, uint32(len(id))), id...)
	for i := range events {
		e := &events[i]
		log = le.AppendUint32(le.AppendUint32(le.AppendUint32(log, uint32(e.PCR)), e.Type), 1)
		log = append(le.AppendUint16(log, uint16(tpm2.TPMAlgSHA256)), e.digest()...)
		log = append(le.AppendUint32(log, uint32(len(e.Data))), e.Data...)
	}
	return log
}

// Boot has a TPM that was reset measure events, and returns the log of them.
func Boot(t testing.TB, tpm transport.TPM, events []BootEvent) []byte {
	t.Helper()
	for i := range events {
		if e := &events[i]; e.Type != noAction {
			extend(t, tpm, tpm2.TPMHandle(e.PCR), e.digest())
		}
	}
	return EventLog(events)
}
