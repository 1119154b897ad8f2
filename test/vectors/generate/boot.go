package main

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

// bootEvent is a measurement by firmware.
type bootEvent struct {
	pcr, kind uint32
	data      []byte
	measured  []byte // the digested bytes, nil for data
}

func (e *bootEvent) digest(bank tpm2.TPMAlgID) []byte {
	if e.measured != nil {
		return bankDigest(bank, e.measured)
	}
	return bankDigest(bank, e.data)
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

// efiVariable is the event of an EFI variable.
func efiVariable(kind uint32, vendor []byte, name string, value []byte) bootEvent {
	units := utf16.Encode([]rune(name))
	sizes := []uint64{uint64(len(units)), uint64(len(value))}
	b := forge.Must(binary.Append(slices.Clone(vendor), binary.LittleEndian, sizes))
	b = forge.Must(binary.Append(b, binary.LittleEndian, units))
	return bootEvent{7, kind, append(b, value...), nil}
}

// bootOf is what firmware measures in a boot with Secure Boot on or off, or without the
// variable.
func bootOf(secureBoot ...byte) []bootEvent {
	keys := slices.Concat([]byte("\x26\x16\xc4\xc1\x4c\x50\x92\x40\xac\xa9\x41\xf9\x36\x93\x43\x28\x4c\x00\x00\x00\x00\x00\x00\x00\x30\x00\x00\x00"), make([]byte, 48))
	events := []bootEvent{
		{0, eventVersion, []byte("version"), nil},
		efiVariable(eventVariable, globalVariable, "SecureBoot", secureBoot),
		efiVariable(eventVariable, globalVariable, "PK", keys),
		efiVariable(eventVariable, globalVariable, "KEK", keys),
		efiVariable(eventVariable, imageSecurity, "db", keys),
		efiVariable(eventVariable, imageSecurity, "dbx", keys),
	}
	for pcr := range uint32(8) {
		events = append(events, bootEvent{pcr, eventSeparator, make([]byte, 4), nil})
	}
	return append(events, efiVariable(eventAuthority, shimLock, "SbatLevel", []byte("x")))
}

var bootBanks = []tpm2.TPMAlgID{forge.BankSHA256, forge.BankSHA384}

// bootLog writes a crypto-agile log of both banks, with digests of 32 bytes of other algorithms
// behind them.
func bootLog(events []bootEvent, others ...tpm2.TPMAlgID) []byte {
	le := binary.LittleEndian
	id := append([]byte("Spec ID Event03\x00"), 0, 0, 0, 0, 0, 2, 0, 2)
	id = le.AppendUint32(id, uint32(len(bootBanks)+len(others)))
	for _, bank := range bootBanks {
		id = le.AppendUint16(le.AppendUint16(id, uint16(bank)), uint16(forge.Must(bank.Hash()).Size()))
	}
	for _, alg := range others {
		id = le.AppendUint16(le.AppendUint16(id, uint16(alg)), 32)
	}
	id = append(id, 0)
	log := append(le.AppendUint32(le.AppendUint32(nil, 0), eventNoAction), make([]byte, 20)...)
	log = append(le.AppendUint32(log, uint32(len(id))), id...)
	for _, e := range events {
		log = le.AppendUint32(le.AppendUint32(le.AppendUint32(log, e.pcr), e.kind), uint32(len(bootBanks)+len(others)))
		for _, bank := range bootBanks {
			log = append(le.AppendUint16(log, uint16(bank)), e.digest(bank)...)
		}
		for _, alg := range others {
			log = append(le.AppendUint16(log, uint16(alg)), make([]byte, 32)...)
		}
		log = append(le.AppendUint32(log, uint32(len(e.data))), e.data...)
	}
	return log
}

func bankDigest(bank tpm2.TPMAlgID, data ...[]byte) []byte {
	h := forge.Must(bank.Hash()).New()
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
			value := make([]byte, forge.Must(bank.Hash()).Size())
			for _, e := range events {
				if e.pcr == pcr {
					value = bankDigest(bank, value, e.digest(bank))
				}
			}
			q.PCRs = append(q.PCRs, statement.PCR{Bank: bank, Index: int(pcr), Value: value})
		}
	}
	q.Digest()
	return &vector.Boot{Quote: *q.vector(), EventLog: bootLog(log)}
}

// shownAs shows the first n events under another type, and with other data if these are not
// nil: neither is measured.
func shownAs(events []bootEvent, n int, kind uint32, data []byte) []bootEvent {
	events = slices.Clone(events)
	for i := range events[:n] {
		e := &events[i]
		e.kind, e.measured = kind, e.data
		if data != nil {
			e.data = data
		}
	}
	return events
}

// boots concern Secure Boot, and the bank that shows it.
func (w *world) boots() {
	type banks = map[tpm2.TPMAlgID][]bootEvent
	on, off, absent := bootOf(1), bootOf(0), bootOf()
	twice := append(bootOf(0), bootOf(1)...)
	legacy := append([]bootEvent{{7, eventSeparator, []byte("\xff\xff\xff\xff"), nil}}, on...)
	beside := slices.Insert(bootOf(1), 1,
		bootEvent{7, 0x8401, []byte("a vendor's"), nil},
		efiVariable(0x800000e3, imageSecurity, "devdb", nil),
		efiVariable(eventAuthority, imageSecurity, "db", make([]byte, 48)))
	unreadable := bootOf(1)
	unreadable[2] = efiVariable(eventVariable, globalVariable, "PK", []byte(strings.Repeat("Z", 16)+"\x2d\x00\x00\x00\x00\x00\x00\x00\x11\x00\x00\x00"+strings.Repeat("k", 17)))
	foreign := bootOf(1)
	foreign[1] = efiVariable(eventVariable, imageSecurity, "SecureBoot", []byte{1})
	one := banks{forge.BankSHA256: on}
	without7 := slices.DeleteFunc(bootOf(1), func(e bootEvent) bool { return e.pcr == 7 })
	for _, b := range listed("boots", map[string]struct {
		log    []bootEvent
		quoted banks
		edit   func(*vector.Boot)
	}{
		"secure-boot-on":                                  {on, banks{forge.BankSHA256: on}, nil},
		"secure-boot-on-in-two-banks":                     {on, banks{forge.BankSHA256: on, forge.BankSHA384: on}, nil},
		"secure-boot-on-in-the-named-bank":                {on, banks{forge.BankSHA384: on}, func(b *vector.Boot) { b.Bank = forge.BankSHA384 }},
		"secure-boot-off":                                 {off, banks{forge.BankSHA256: off}, nil},
		"secure-boot-on-in-a-filled-in-bank":              {on, banks{forge.BankSHA384: on}, nil},
		"secure-boot-on-in-a-filled-in-bank-beside":       {on, banks{forge.BankSHA256: off, forge.BankSHA384: on}, nil},
		"secure-boot-on-an-unextended-bank":               {on, banks{forge.BankSHA256: nil}, nil},
		"secure-boot-on-an-unextended-bank-and-no-events": {nil, banks{forge.BankSHA256: nil}, nil},
		"secure-boot-without-pcr-7":                       {without7, banks{forge.BankSHA256: without7}, nil},
		"secure-boot-with-pcr-7-unexplained":              {on, banks{forge.BankSHA256: on}, func(b *vector.Boot) { b.Unexplained = []int{7} }},
		"secure-boot-without-a-log":                       {on, banks{forge.BankSHA256: on}, func(b *vector.Boot) { b.EventLog = nil }},
		"secure-boot-with-the-log-of-another-boot":        {on, banks{forge.BankSHA256: off}, nil},
		"secure-boot-on-beside-other-events":              {beside, banks{forge.BankSHA256: beside}, nil},
		"secure-boot-on-with-a-key-of-another-type":       {unreadable, banks{forge.BankSHA256: unreadable}, nil},
		"secure-boot-on-under-other-types":                {shownAs(on, len(on), 0x8401, nil), one, nil},
		"secure-boot-on-in-a-log-with-sm3":                {on, one, func(b *vector.Boot) { b.EventLog = bootLog(on, tpm2.TPMAlgSM3256) }},
		"secure-boot-on-in-an-area-of-ones": {on, one,
			func(b *vector.Boot) { b.EventLog = append(b.EventLog, bytes.Repeat([]byte{0xff}, 64)...) }},
		"secure-boot-on-in-a-log-of-zeros": {on, one, func(b *vector.Boot) { b.EventLog = make([]byte, len(b.EventLog)) }},
		"secure-boot-on-in-a-padded-log": {on, one,
			func(b *vector.Boot) {
				b.EventLog = append(append(bootLog(on[:1]), make([]byte, 40)...), bootLog(on[1:])[len(bootLog(nil)):]...)
			}},
		"secure-boot-absent":                         {absent, banks{forge.BankSHA256: absent}, nil},
		"secure-boot-of-another-vendor":              {foreign, banks{forge.BankSHA256: foreign}, nil},
		"secure-boot-off-before-a-good-boot":         {twice, banks{forge.BankSHA256: twice}, nil},
		"secure-boot-off-under-other-types":          {shownAs(twice, len(off), 0x8401, nil), banks{forge.BankSHA256: twice}, nil},
		"secure-boot-off-behind-other-data":          {shownAs(twice, len(off), 0x8401, []byte("a vendor's")), banks{forge.BankSHA256: twice}, nil},
		"secure-boot-off-behind-variables":           {shownAs(twice, len(off), eventVariable, on[2].data), banks{forge.BankSHA256: twice}, nil},
		"secure-boot-off-as-events-without-action":   {shownAs(twice, len(off), eventNoAction, nil), banks{forge.BankSHA256: twice}, nil},
		"secure-boot-on-behind-a-legacy-boot":        {legacy, banks{forge.BankSHA256: legacy}, nil},
		"secure-boot-on-behind-a-hidden-legacy-boot": {shownAs(legacy, 1, 0x8401, []byte("a vendor's")), banks{forge.BankSHA256: legacy}, nil},
		"secure-boot-by-a-forged-quote": {on, banks{forge.BankSHA256: off},
			func(b *vector.Boot) { b.Quote.PCRs = w.booted(on, banks{forge.BankSHA256: on}).Quote.PCRs }},
	}) {
		boot := w.booted(b.Change.log, b.Change.quoted)
		if b.Change.edit != nil {
			b.Change.edit(boot)
		}
		if b.Expect == "" {
			w.acceptAs("boot-"+b.Name, b.What, boot, nil, nil)
		} else {
			w.refuseAs("boot-"+b.Name, b.What, b.Expect, boot, nil)
		}
	}
}
