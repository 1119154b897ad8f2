package main

import (
	"encoding/binary"
	"slices"
	"unicode/utf16"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

// heldQuote is a quote and what a caller checks it against, which hold changes.
type heldQuote struct {
	*forge.Quoting
	hold func(*vector.Quote)
}

func (w *world) hold(ak *forge.SoftAK) *heldQuote { return &heldQuote{Quoting: w.QuoteBy(ak)} }

func (q *heldQuote) vector() *vector.Quote {
	raw, signature := q.Signed()
	out := &vector.Quote{Attest: raw, Signature: signature, AKPublic: q.AK.Public.Raw, QualifyingData: forge.LoneQuoteData}
	if q.PCRs != nil {
		out.PCRs = []vector.PCR{}
	}
	for _, p := range q.PCRs {
		out.PCRs = append(out.PCRs, vector.PCR(p))
	}
	if q.hold != nil {
		q.hold(out)
	}
	return out
}

func (w *world) quotes() {
	w.acceptedQuotes()
	w.quotesBy(w.AKP256, forge.QuoteAttacks())
	w.quotesBy(w.AKRSA, rsaQuotes())
	for _, a := range heldQuotes() {
		q := w.hold(w.AKP256)
		a.Change(q)
		w.refuseAs("quote-"+a.Name, a.What, a.Expect, q.vector(), nil)
	}
}

func (w *world) quotesBy(ak *forge.SoftAK, attacks []forge.QuoteAttack) {
	for _, a := range attacks {
		q := w.hold(ak)
		a.Change(q.Quoting)
		w.refuseAs("quote-"+a.Name, a.What, a.Expect, q.vector(), nil)
	}
}

// rsaQuotes are attacks on a quote by an RSA AK.
func rsaQuotes() []forge.QuoteAttack {
	signature := func(how func([]byte) []byte) func(*forge.Quoting) {
		return func(q *forge.Quoting) { q.Signature = func(v *statement.Signature) { v.RSA = how(v.RSA) } }
	}
	return listed("quotes by an RSA key", map[string]func(*forge.Quoting){
		"signed-with-sha1":      sha1AK,
		"signature-bit-flipped": signature(flipped),
		"signature-truncated":   signature(truncated),
	})
}

// sha1AK gives the AK a SHA-1 scheme, which the quote's digest follows.
func sha1AK(q *forge.Quoting) {
	q.Scheme = sha1RSASSA
	q.ChangeAK(func(p *statement.Public) { p.Scheme = q.Scheme })
	q.Digest()
}

// acceptedQuotes are the good ones, and what a caller knowingly tolerates.
func (w *world) acceptedQuotes() {
	trusted, untrusted := &vector.Result{ClockTrusted: new(true)}, &vector.Result{ClockTrusted: new(false)}
	seven := forge.PCRValue(forge.BankSHA256, 7)
	selects := func(s ...statement.PCRSelection) func(*heldQuote) { return func(q *heldQuote) { q.SelectPCRs(s...) } }
	for _, a := range listed("good quotes", map[string]struct {
		result *vector.Result
		how    func(*heldQuote)
	}{
		"ecdsa":                    {trusted, func(*heldQuote) {}},
		"rsassa":                   {trusted, func(q *heldQuote) { q.Quoting = w.QuoteBy(w.AKRSA) }},
		"values-in-another-order":  {trusted, func(q *heldQuote) { slices.Reverse(q.PCRs) }},
		"selection-of-four-octets": {trusted, selects(forge.SelectionOf(forge.BankSHA256, 0xff, 0, 0, 0))},
		"selection-of-one-octet":   {trusted, selects(forge.SelectionOf(forge.BankSHA256, 0xff))},
		"two-banks":                {trusted, selects(forge.SelectionOf(forge.BankSHA384, 3, 0, 0), forge.SelectionOf(forge.BankSHA256, 0x80, 0, 0))},
		"selection-as-asked":       {trusted, wants(forge.BankSHA256, 0xff, 0, 0, 0)},
		"value-asked": {&vector.Result{ClockTrusted: new(true), Value: seven.Value},
			held(func(v *vector.Quote) { v.Asked = &vector.PCR{Bank: forge.BankSHA256, Index: 7} })},
		"with-a-resettable-pcr": {trusted, selects(forge.SelectionOf(forge.BankSHA256, 1, 0, 1))},
		"by-a-key-below-another": {untrusted,
			func(q *heldQuote) {
				q.Attest.QualifiedSigner = statement.QualifiedName(w.AKOther.Primary(), q.AK.Public.Name())
			}},
		"by-a-bare-key": {untrusted, held(func(v *vector.Quote) { v.AKPublic, v.AKKey = nil, forge.SPKI(w.AKP256.Private.Public()) })},
		"of-the-sha1-bank-allowed": {trusted, func(q *heldQuote) {
			q.SelectPCRs(forge.SelectionOf(forge.BankSHA1, 1, 0, 0), forge.SelectionOf(forge.BankSHA256, 1, 0, 0))
			q.hold = option("insecureAllowSHA1Bank")
		}},
		"signed-with-sha1-allowed": {trusted, func(q *heldQuote) {
			q.Quoting = w.QuoteBy(w.AKRSA)
			sha1AK(q.Quoting)
			q.hold = option("insecureAllowSHA1Signature")
		}},
		"under-a-sha1-name-allowed": {trusted, func(q *heldQuote) {
			q.ChangeAK(func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 })
			q.hold = option("insecureAllowSHA1Name")
		}},
		"with-any-qualifying-data": {trusted, func(q *heldQuote) {
			q.Attest.ExtraData, q.hold = []byte("recorded"), func(v *vector.Quote) {
				v.QualifyingData, v.Options = nil, []string{"insecureAllowAnyQualifyingData"}
			}
		}},
	}) {
		q := w.hold(w.AKP256)
		a.Change.how(q)
		w.acceptAs("quote-"+a.Name, a.What, q.vector(), nil, a.Change.result)
	}
}

// option is a caller that sets that field of statement.QuoteOptions.
func option(name string) func(*vector.Quote) {
	return func(v *vector.Quote) { v.Options = []string{name} }
}

// held is a good quote that is checked against something else.
func held(how func(*vector.Quote)) func(*heldQuote) { return func(q *heldQuote) { q.hold = how } }

// wants is a caller that requires that selection.
func wants(bank tpm2.TPMAlgID, octets ...byte) func(*heldQuote) {
	return held(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{{Hash: bank, Select: octets}} })
}

// heldQuotes are good quotes that are checked against something else, and quotes that were
// changed after they were signed.
func heldQuotes() []forge.Attack[func(*heldQuote)] {
	asks := func(bank tpm2.TPMAlgID, index int) func(*heldQuote) {
		return func(q *heldQuote) {
			q.SelectPCRs(forge.SelectionOf(forge.BankSHA256, 1, 0, 0x81))
			q.hold = func(v *vector.Quote) { v.Asked = &vector.PCR{Bank: bank, Index: index} }
		}
	}
	return listed("held quotes", map[string]func(*heldQuote){
		"clock-changed":                        held(func(v *vector.Quote) { v.Attest[len(v.Attest)-1-clockBehind] ^= 1 }),
		"for-a-caller-without-an-ak":           held(func(v *vector.Quote) { v.AKPublic = nil }),
		"for-a-caller-without-qualifying-data": held(func(v *vector.Quote) { v.QualifyingData = nil }),
		"for-a-caller-of-two-minds":            held(option("insecureAllowAnyQualifyingData")),
		"of-fewer-pcrs-than-asked":             wants(forge.BankSHA256, 0xff, 1, 0),
		"of-more-pcrs-than-asked":              wants(forge.BankSHA256, 0x80, 0, 0),
		"of-another-bank-than-asked":           wants(forge.BankSHA384, 0xff, 0, 0),
		"for-a-caller-who-asks-for-nothing":    held(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{} }),
		"asked-for-a-pcr-outside":              asks(forge.BankSHA256, 1),
		"asked-for-another-bank":               asks(forge.BankSHA384, 0),
		"asked-for-pcr-16":                     asks(forge.BankSHA256, 16),
		"asked-for-pcr-23":                     asks(forge.BankSHA256, 23),
		"signature-trailing-bytes":             held(func(v *vector.Quote) { v.Signature = append(v.Signature, 0) }),
	})
}

// clockBehind is the size of what follows the low byte of restartCount: the safe flag, the
// firmware version, one selection of three octets and a SHA-256 digest.
const clockBehind = 1 + 8 + 4 + 2 + 1 + 3 + 2 + 32

// quotedAnswers are answers with a quote.
func (w *world) quotedAnswers() {
	quoted := func(change func(*forge.Forgery)) *forge.Forgery {
		f := w.Forge(w.AKP256, forge.Join{}).WithQuote()
		change(f)
		return f
	}
	good := &vector.Environment{GoodPCRs: []vector.PCR{vector.PCR(forge.PCRValue(forge.BankSHA256, 0)), vector.PCR(forge.PCRValue(forge.BankSHA256, 7))}}
	unchanged := func(*forge.Forgery) {}
	w.accept("quote-in-answer", quoted(unchanged), good, resultOf(true))
	w.accept("quote-in-answer-unasked", quoted(unchanged), nil, resultOf(true))
	w.accept("quote-and-event-log-in-answer", quoted(func(f *forge.Forgery) {
		f.Behind = func(s []message.Statement) []message.Statement { return append(s, forge.EventLog()) }
	}), nil, resultOf(true))
	for _, a := range forge.QuotedAttacks() {
		v := w.refuseAs("answer-"+a.Name, a.What, a.Expect, quoted(a.Change), nil)
		if a.Wanted {
			v.Environment = good
		}
	}
}

// bootEvent is a measurement by firmware: its data is what is digested.
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

// bootOf is what firmware measures in a boot with Secure Boot on or off.
func bootOf(secureBoot byte) []bootEvent {
	variable := func(kind uint32, vendor []byte, name string, value []byte) bootEvent {
		units := utf16.Encode([]rune(name))
		sizes := []uint64{uint64(len(units)), uint64(len(value))}
		b := forge.Must(binary.Append(slices.Clone(vendor), binary.LittleEndian, sizes))
		b = forge.Must(binary.Append(b, binary.LittleEndian, units))
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
		id = le.AppendUint16(le.AppendUint16(id, uint16(bank)), uint16(forge.Must(bank.Hash()).Size()))
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
					value = bankDigest(bank, value, bankDigest(bank, e.data))
				}
			}
			q.PCRs = append(q.PCRs, statement.PCR{Bank: bank, Index: int(pcr), Value: value})
		}
	}
	q.Digest()
	return &vector.Boot{Quote: *q.vector(), EventLog: bootLog(log)}
}

// boots concern Secure Boot, and the bank that shows it.
func (w *world) boots() {
	on, off := bootOf(1), bootOf(0)
	without7 := slices.DeleteFunc(bootOf(1), func(e bootEvent) bool { return e.pcr == 7 })
	type banks = map[tpm2.TPMAlgID][]bootEvent
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
