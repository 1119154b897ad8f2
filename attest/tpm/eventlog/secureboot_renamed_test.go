package eventlog

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// shown is an event as a log can show it: whatever its type and its data, its digest is the
// measured one.
func shown(e logged, typ Type, data string) logged {
	return logged{e.pcr, typ, data, e.data}
}

// showAll shows the first n events in the same way.
func showAll(events []logged, n int, as func(e logged) logged) []logged {
	events = slices.Clone(events)
	for i := range events[:n] {
		events[i] = as(events[i])
	}
	return events
}

// demand returns the control plane's verdict, where Secure Boot must be on, about a machine that
// measured these events, in this order, and shows that log.
func demand(t testing.TB, measured, log []logged) error {
	t.Helper()
	q := quoted(t, measure(tpm2.TPMAlgSHA256, 7, measured...))
	return (&BootPolicy{PCRs: []int{7}, RequireSecureBoot: true}).CheckQuote(t.Context(), &tpm.Measured{Quote: q, EventLog: writeLog(log...)})
}

// A machine booted with Secure Boot off, and its root measured a good boot after that. No
// rewriting of types and data makes it pass, because neither is measured.
func TestSecureBootOffAndShownAsOn(t *testing.T) {
	off, on := secureBootOfTest("\x00"), secureBootOfTest("\x01")
	const unknown Type = 0x80008401
	twice := slices.Concat(off, on)
	hide := func(typ Type, data string) func(logged) logged {
		return func(e logged) logged { return shown(e, typ, data) }
	}
	at := func(n int, typ Type, data string) []logged {
		log := slices.Clone(twice)
		log[n] = shown(log[n], typ, data)
		return log
	}
	for name, log := range map[string][]logged{
		"as it was":                             twice,
		"of unknown types":                      showAll(twice, 7, func(e logged) logged { return shown(e, unknown, e.data) }),
		"with other data":                       showAll(twice, 7, hide(unknown, "vendor")),
		"without data":                          showAll(twice, 7, hide(unknown, "")),
		"as events that extend nothing":         showAll(twice, 7, func(e logged) logged { return shown(e, typeNoAction, e.data) }),
		"as texts":                              showAll(twice, 7, hide(typeAction, dmaProtectionDisabled)),
		"as applications":                       showAll(twice, 7, hide(0x80000003, "path")),
		"as authorities":                        showAll(twice, 7, hide(0x800000e0, variable(globalVariable, "db", "x"))),
		"with a byte more":                      showAll(twice, 7, func(e logged) logged { return shown(e, e.typ, e.data+"\x00") }),
		"padded to one size":                    showAll(twice, 7, func(e logged) logged { return shown(e, e.typ, e.data+strings.Repeat("\x00", 300)) }),
		"all of unknown types":                  showAll(twice, 14, func(e logged) logged { return shown(e, unknown, e.data) }),
		"SecureBoot hidden":                     at(0, unknown, "vendor"),
		"SecureBoot hidden as an empty event":   at(0, unknown, ""),
		"SecureBoot shown as 01":                at(0, typeVariable, on[0].data),
		"SecureBoot shown as another variable":  at(0, typeVariable, variable(globalVariable, "SetupMode", "\x00")),
		"SecureBoot shown as a separator":       at(0, typeSeparator, separator),
		"the separator hidden":                  at(5, unknown, "vendor"),
		"the separator hidden as a variable":    at(5, typeVariable, variable(globalVariable, "SetupMode", "\x00")),
		"the separator hidden as an authority":  at(5, 0x800000e0, variable(globalVariable, "db", "x")),
		"the separator shown as an empty event": at(5, typeSeparator, ""),
		"the good boot first":                   slices.Concat(on, off),
		"only the good boot":                    on,
		"the good boot over the digests of the other": showAll(twice, 7, func(e logged) logged {
			return shown(e, e.typ, on[slices.IndexFunc(off, func(o logged) bool { return o.data == e.data })].data)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := demand(t, twice, log); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// What firmware can have measured before root measured a good boot: nothing of it ends in a
// state that is on, whether the log shows it as it was or hides it.
func TestGoodBootAfterAnother(t *testing.T) {
	le := binary.LittleEndian
	on, sep := secureBootOfTest("\x01"), logged{7, typeSeparator, separator, ""}
	value := func(vendor []byte, name, value string) logged {
		return logged{7, typeVariable, variable(vendor, name, value), ""}
	}
	other := slices.Repeat([]byte{7}, 16)
	for name, before := range map[string][]logged{
		"off, without a separator":          secureBootOfTest("\x00")[:5],
		"off, twice":                        append(secureBootOfTest("\x00"), secureBootOfTest("\x00")...),
		"on":                                on,
		"on, without a separator":           on[:5],
		"no variable":                       {value(globalVariable, secureBootName, ""), sep},
		"a separator":                       {sep},
		"a separator of SeaBIOS":            {{7, typeSeparator, "\xff\xff\xff\xff", ""}},
		"a separator of an error":           {{7, typeSeparator, "\x01\x00\x00\x00", ""}},
		"a separator of an error, reversed": {{7, typeSeparator, "\x00\x00\x00\x01", ""}},
		"SecureBoot of another vendor":      {value(other, secureBootName, "\x00"), sep},
		"SECUREBOOT":                        {value(globalVariable, "SECUREBOOT", "\x00"), sep},
		"SecureBoot with its zero":          {value(globalVariable, secureBootName+"\x00", "\x00"), sep},
		"SecureBoot of two bytes":           {value(globalVariable, secureBootName, "\x00\x00"), sep},
		"SecureBoot and more":               {{7, typeVariable, variable(globalVariable, secureBootName, "\x00") + "more", ""}, sep},
		"a length over the end":             {{7, typeVariable, string(le.AppendUint64(slices.Clone(globalVariable), 1<<63)), ""}, sep},
	} {
		measured := slices.Concat(before, on)
		for how, as := range map[string]func(e logged) logged{
			"shown":                   func(e logged) logged { return e },
			"of another type":         func(e logged) logged { return shown(e, 0x800000e3, e.data) },
			"hidden":                  func(e logged) logged { return shown(e, 0x800000e3, "vendor") },
			"hidden behind variables": func(e logged) logged { return shown(e, typeVariable, variable(other, "Setup", "x")) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				expectCheck(t, demand(t, measured, showAll(measured, len(before), as)), CheckSecureBoot)
			})
		}
	}
}

// One thing is other than the profile says in a boot that is on otherwise.
func TestVariableAndSeparatorToTheLetter(t *testing.T) {
	for name, c := range map[string]struct {
		n    int
		data string
		ok   bool
	}{
		"a separator of ones":                     {5, "\xff\xff\xff\xff", true},
		"a separator of an error":                 {5, "\x01\x00\x00\x00", false},
		"a separator of an error, reversed":       {5, "\x00\x00\x00\x01", false},
		"a separator that the profile has not":    {5, "\x02\x00\x00\x00", false},
		"a separator of two bytes":                {5, "\x00\x00", false},
		"SecureBoot":                              {0, variable(globalVariable, secureBootName, "\x01"), true},
		"SecureBoot of two bytes":                 {0, variable(globalVariable, secureBootName, "\x01\x01"), false},
		"SecureBoot and more":                     {0, variable(globalVariable, secureBootName, "\x01") + "m", false},
		"SECUREBOOT":                              {0, variable(globalVariable, "SECUREBOOT", "\x01"), false},
		"SecureBoot with its zero":                {0, variable(globalVariable, secureBootName+"\x00", "\x01"), false},
		"SECUREBOOT next to it":                   {1, variable(globalVariable, "SECUREBOOT", "\x00"), false},
		"SecureBoot with its zero next to it":     {1, variable(globalVariable, secureBootName+"\x00", "\x00"), false},
		"SecureBoot of another vendor next to it": {1, variable(vendorOfDB, secureBootName, "\x00"), false},
		"SetupMode next to it":                    {1, variable(globalVariable, "SetupMode", "\x00"), true},
	} {
		t.Run(name, func(t *testing.T) {
			boot := secureBootOfTest("\x01")
			boot = slices.Insert(boot, c.n, logged{7, typeVariable, c.data, ""})
			if c.n != 1 {
				boot = slices.Delete(boot, c.n+1, c.n+2)
			}
			want := CheckSecureBoot
			if c.ok {
				want = ""
			}
			expectCheck(t, demand(t, boot, boot), want)
		})
	}
}

// Shim that was told to check nothing measures that, and the log cannot hide it.
func TestShimThatChecksNothing(t *testing.T) {
	state := string(marshalVariable(shimLock, shimStateName, 1))
	for name, c := range map[string]struct {
		data, measured string
		ok             bool
	}{
		"shown":                                 {state, "", false},
		"hidden":                                {"vendor", state, false},
		"shown by an old version":               {state + strings.Repeat("\x00", 6), state + strings.Repeat("\x00", 5), false},
		"hidden, of an old version":             {"vendor", state + strings.Repeat("\x00", 5), false},
		"another value":                         {string(marshalVariable(shimLock, shimStateName, 0, 1)), "", false},
		"off":                                   {string(marshalVariable(shimLock, shimStateName, 0)), "", true},
		"no value":                              {string(marshalVariable(shimLock, shimStateName)), "", true},
		"another vendor's":                      {string(marshalVariable(globalVariable, shimStateName, 1)), "", true},
		"shim that ignores db":                  {string(marshalVariable(shimLock, "MokDBState", 1)), "", true},
		"what is not known":                     {"vendor", "", true},
		"what is not known, and was hidden":     {"vendor", "another", false},
		"another state that shim takes, hidden": {"vendor", string(marshalVariable(shimLock, shimStateName, 2)), false},
		"another state that shim takes, shown":  {string(marshalVariable(shimLock, shimStateName, 2)), "", false},
		"a key of the owner, hidden":            {"x", string(marshalVariable(shimLock, "MokList", 1, 2, 3)), false},
	} {
		t.Run(name, func(t *testing.T) {
			boot := append(secureBootOfTest("\x01"), logged{7, 0x800000e0, c.data, c.measured})
			want := CheckSecureBoot
			if c.ok {
				want = ""
			}
			expectCheck(t, demand(t, boot, boot), want)
		})
	}
}

// The far side: types decide nothing in a good boot either, and measured data that are not
// understood do not refuse it.
func TestSecureBootOnWhateverTheTypes(t *testing.T) {
	on := secureBootOfTest("\x01")
	expectCheck(t, demand(t, on, on), "")
	for _, typ := range []Type{0, typeSeparator, typeVariable, typeAction, 0x800000e0, 0x80008401} {
		expectCheck(t, demand(t, on, showAll(on, len(on), func(e logged) logged { return shown(e, typ, e.data) })), "")
	}
	off := secureBootOfTest("\x00")
	off[0].typ = 0x800000e0
	l, err := Replay(writeLog(off...), quoted(t, measure(tpm2.TPMAlgSHA256, 7, off...)), nil)
	expectCheck(t, err, "")
	if state, err := l.SecureBoot(tpm2.TPMAlgSHA256); err != nil || state.Enabled {
		t.Errorf("%+v, %v", state, err)
	}
}

// The digests are of a boot with Secure Boot off and of a good one after it; types and data are
// any.
func FuzzSecureBootShown(f *testing.F) {
	measured := slices.Concat(secureBootOfTest("\x00"), secureBootOfTest("\x01"))
	q := quoted(f, measure(tpm2.TPMAlgSHA256, 7, measured...))
	f.Add(uint32(typeAction), uint16(0), uint16(0x7f), []byte("vendor"))
	f.Add(uint32(0x800000e3), uint16(1<<5), uint16(1), []byte(measured[7].data))
	f.Add(uint32(typeVariable), uint16(0x7f), uint16(1<<5), []byte(separator))
	f.Add(uint32(typeNoAction), uint16(1), uint16(0), []byte{})
	f.Fuzz(func(t *testing.T, typ uint32, retyped, rewritten uint16, data []byte) {
		log := slices.Clone(measured)
		for n := range log {
			e := logged{7, log[n].typ, log[n].data, log[n].data}
			if retyped>>n&1 == 1 {
				e.typ = Type(typ)
			}
			if rewritten>>n&1 == 1 {
				e.data = string(data)
			}
			log[n] = e
		}
		checkNotOn(t, writeLog(log...), q)
	})
}

func checkNotOn(t *testing.T, log []byte, q *statement.Quoted) {
	t.Helper()
	l, err := Replay(log, q, nil)
	if err != nil {
		return
	}
	if state, err := l.SecureBoot(tpm2.TPMAlgSHA256); err == nil && state.Enabled {
		t.Fatalf("Secure Boot is on: %+v", state)
	}
}
