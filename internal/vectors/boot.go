package main

import (
	"encoding/binary"
	"slices"
	"unicode/utf16"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// bootEvent is a measurement of firmware: its data are what is digested.
type bootEvent struct {
	pcr, kind uint32
	data      []byte
}

// Types of events: TCG PC Client Platform Firmware Profile 1.06, 10.4.1.
const (
	eventNoAction  = 3
	eventSeparator = 4
	eventVersion   = 8
	eventVariable  = 0x80000001
	eventAuthority = 0x800000e0
)

var (
	globalVariable = []byte("\x61\xdf\xe4\x8b\xca\x93\xd2\x11\xaa\x0d\x00\xe0\x98\x03\x2b\x8c")
	imageSecurity  = []byte("\xcb\xb2\x19\xd7\x3a\x3d\x96\x45\xa3\xbc\xda\xd0\x0e\x67\x65\x6f")
	shimLock       = []byte("\x50\xab\x5d\x60\x46\xe0\x00\x43\xab\xb6\x3d\xd8\x10\xdd\x8b\x23")
)

// bootOf is what firmware measures of a boot with Secure Boot on or off.
func bootOf(secureBoot byte) []bootEvent {
	variable := func(kind uint32, vendor []byte, name string, value []byte) bootEvent {
		units := utf16.Encode([]rune(name))
		b := binary.LittleEndian.AppendUint64(slices.Clone(vendor), uint64(len(units)))
		b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
		for _, u := range units {
			b = binary.LittleEndian.AppendUint16(b, u)
		}
		return bootEvent{7, kind, append(b, value...)}
	}
	keys := slices.Concat([]byte("\x26\x16\xc4\xc1\x4c\x50\x92\x40\xac\xa9\x41\xf9\x36\x93\x43\x28\x4c\x00\x00\x00\x00\x00\x00\x00\x30\x00\x00\x00"), make([]byte, 48))
	events := []bootEvent{
		{0, eventVersion, []byte("version")},
		variable(eventVariable, globalVariable, "SecureBoot", []byte{secureBoot}),
		variable(eventVariable, globalVariable, "PK", keys),
		variable(eventVariable, globalVariable, "KEK", keys),
		variable(eventVariable, imageSecurity, "db", keys),
		variable(eventVariable, imageSecurity, "dbx", keys),
	}
	for pcr := range uint32(8) {
		events = append(events, bootEvent{pcr, eventSeparator, make([]byte, 4)})
	}
	return append(events, variable(eventAuthority, shimLock, "SbatLevel", []byte("x")))
}

var bootBanks = []tpm2.TPMAlgID{forge.BankSHA256, forge.BankSHA384}

// bootLog writes a crypto-agile log of both banks.
func bootLog(events []bootEvent) []byte {
	le := binary.LittleEndian
	id := append([]byte("Spec ID Event03\x00"), 0, 0, 0, 0, 0, 2, 0, 2)
	id = le.AppendUint32(id, uint32(len(bootBanks)))
	for _, bank := range bootBanks {
		id = le.AppendUint16(le.AppendUint16(id, uint16(bank)), uint16(forge.Hashes[bank].Size()))
	}
	id = append(id, 0)
	log := append(le.AppendUint32(le.AppendUint32(nil, 0), eventNoAction), make([]byte, 20)...)
	log = append(le.AppendUint32(log, uint32(len(id))), id...)
	for _, e := range events {
		log = le.AppendUint32(le.AppendUint32(le.AppendUint32(log, e.pcr), e.kind), uint32(len(bootBanks)))
		for _, bank := range bootBanks {
			log = append(le.AppendUint16(log, uint16(bank)), bankDigest(bank, e.data)...)
		}
		log = append(le.AppendUint32(log, uint32(len(e.data))), e.data...)
	}
	return log
}

func bankDigest(bank tpm2.TPMAlgID, data ...[]byte) []byte {
	h := forge.Hashes[bank].New()
	for _, b := range data {
		h.Write(b)
	}
	return h.Sum(nil)
}

// booted is a quote over PCRs 0 to 7 as each bank's events leave them, and a log.
func (w *world) booted(log []bootEvent, banks map[tpm2.TPMAlgID][]bootEvent) *vector.Boot {
	q := w.hold(w.AKP256)
	q.Attest.Quote.Selections, q.PCRs = nil, nil
	for _, bank := range bootBanks {
		events, quoted := banks[bank]
		if !quoted {
			continue
		}
		q.Attest.Quote.Selections = append(q.Attest.Quote.Selections, statement.PCRSelection{Hash: bank, Select: []byte{0xff, 0, 0}})
		for pcr := range uint32(8) {
			value := make([]byte, forge.Hashes[bank].Size())
			for _, e := range events {
				if e.pcr == pcr {
					value = bankDigest(bank, value, bankDigest(bank, e.data))
				}
			}
			q.PCRs = append(q.PCRs, statement.PCR{Bank: bank, Index: int(pcr), Value: value})
		}
	}
	q.Digest()
	return &vector.Boot{Quote: *q.vector(), EventLog: bootLog(log)}
}

// boots are about Secure Boot, and about the bank that shows it.
func (w *world) boots() {
	on, off := bootOf(1), bootOf(0)
	without7 := slices.DeleteFunc(bootOf(1), func(e bootEvent) bool { return e.pcr == 7 })
	type banks = map[tpm2.TPMAlgID][]bootEvent
	for _, b := range []struct {
		name, what, expect string
		log                []bootEvent
		quoted             banks
		edit               func(*vector.Boot)
	}{
		{"secure-boot-on", "Secure Boot is on, by the bank of SHA-256.", "", on, banks{forge.BankSHA256: on}, nil},
		{"secure-boot-on-in-two-banks", "Secure Boot is on, in both banks.", "", on, banks{forge.BankSHA256: on, forge.BankSHA384: on}, nil},
		{"secure-boot-on-in-the-named-bank", "The bank of SHA-384 decides, and Secure Boot is on there.", "", on, banks{forge.BankSHA384: on},
			func(b *vector.Boot) { b.Bank = forge.BankSHA384 }},
		{"secure-boot-off", "Secure Boot is off.", "secure-boot", off, banks{forge.BankSHA256: off}, nil},
		{"secure-boot-on-in-a-filled-in-bank", "The firmware extends the bank of SHA-256, where Secure Boot is off; root filled in the bank of SHA-384 and quotes that alone.",
			"pcr-not-quoted", on, banks{forge.BankSHA384: on}, nil},
		{"secure-boot-on-in-a-filled-in-bank-beside", "Root filled in the bank of SHA-384 with another boot, and quotes both.", "event-log-replay", on, banks{forge.BankSHA256: off, forge.BankSHA384: on}, nil},
		{"secure-boot-on-an-unextended-bank", "Nobody extended the bank of SHA-256, and the log says that Secure Boot is on.", "event-log-replay", on, banks{forge.BankSHA256: nil}, nil},
		{"secure-boot-on-an-unextended-bank-and-no-events", "Nobody extended the bank of SHA-256, and the log is empty.", "event-log-unextended", nil, banks{forge.BankSHA256: nil}, nil},
		{"secure-boot-without-pcr-7", "Everything was measured but Secure Boot.", "event-log-unextended", without7, banks{forge.BankSHA256: without7}, nil},
		{"secure-boot-with-pcr-7-unexplained", "PCR 7 is among those that the log need not explain.", "event-log-uncovered", on, banks{forge.BankSHA256: on},
			func(b *vector.Boot) { b.Unexplained = []int{7} }},
		{"secure-boot-without-a-log", "The quote comes without an event log.", "event-log-missing", on, banks{forge.BankSHA256: on}, func(b *vector.Boot) { b.EventLog = nil }},
		{"secure-boot-with-the-log-of-another-boot", "Secure Boot is off, and the log is one of a boot where it is on.", "event-log-replay", on, banks{forge.BankSHA256: off}, nil},
		{"secure-boot-by-a-forged-quote", "A value of the quote was changed to that of a boot with Secure Boot on.", "pcr-digest", on, banks{forge.BankSHA256: off},
			func(b *vector.Boot) { b.Quote.PCRs = w.booted(on, banks{forge.BankSHA256: on}).Quote.PCRs }},
	} {
		boot := w.booted(b.log, b.quoted)
		if b.edit != nil {
			b.edit(boot)
		}
		if b.expect == "" {
			w.accept("boot-"+b.name, b.what, boot, nil, nil)
		} else {
			w.refuse("boot-"+b.name, b.what, b.expect, boot, nil)
		}
	}
}
