package eventlog

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// vendorOfDB is EFI_IMAGE_SECURITY_DATABASE_GUID, the vendor of db and dbx.
var vendorOfDB = []byte{0xcb, 0xb2, 0x19, 0xd7, 0x3a, 0x3d, 0x96, 0x45, 0xa3, 0xbc, 0xda, 0xd0, 0x0e, 0x67, 0x65, 0x6f}

// stateOf reads the state of a boot that measured these events.
func stateOf(t testing.TB, boot ...logged) (*SecureBoot, error) {
	t.Helper()
	l, err := Replay(writeLog(boot...), quoted(t, measure(tpm2.TPMAlgSHA256, 7, boot...)), nil)
	testkit.NoError(t, err)
	return l.SecureBoot(tpm2.TPMAlgSHA256)
}

// Events of real firmware that the state does not need: Secure Boot is on, and variables with
// unread entries are named.
func TestSecureBootBesideWhatIsNotUnderstood(t *testing.T) {
	good, negative := certificates(t)
	hash := strings.Repeat("d", 32)
	value := func(n int, name, value string) func([]logged) []logged {
		return func(b []logged) []logged { b[n].data = variable(vendorOfDB, name, value); return b }
	}
	before := func(events ...logged) func([]logged) []logged {
		return func(b []logged) []logged { return slices.Insert(b, 5, events...) }
	}
	first := func(e logged) func([]logged) []logged {
		return func(b []logged) []logged { return slices.Insert(b, 0, e) }
	}
	after := func(e logged) func([]logged) []logged {
		return func(b []logged) []logged { return append(b, e) }
	}
	for name, c := range map[string]struct {
		change      func([]logged) []logged
		unread      string
		authorities int
	}{
		"nothing else":                           {func(b []logged) []logged { return b }, "PK KEK", 0},
		"a platform key":                         {value(1, "PK", list(listOfX509, good)), "KEK", 0},
		"a negative serial number":               {value(1, "PK", list(listOfX509, negative)), "PK KEK", 0},
		"no certificate":                         {value(1, "PK", list(listOfX509, "?")), "PK KEK", 0},
		"a platform key as RSA-2048":             {value(1, "PK", list(listOfRSA2048, strings.Repeat("n", 256))), "PK KEK", 0},
		"a platform key that is no list":         {value(1, "PK", "?"), "PK KEK", 0},
		"an exchange key of an unknown type":     {value(2, "KEK", list(listOfNobody, "?")), "PK KEK", 0},
		"db with a digest of SHA-384":            {value(3, "db", list(listOfNobody, strings.Repeat("d", 48))), "PK KEK db", 0},
		"db that is no list":                     {value(3, "db", "?"), "PK KEK db", 0},
		"dbx with the digest of a certificate":   {value(4, "dbx", list(listOfNobody, strings.Repeat("d", 48))), "PK KEK dbx", 0},
		"dbx with a certificate":                 {value(4, "dbx", list(listOfX509, good)), "PK KEK dbx", 0},
		"no dbx":                                 {func(b []logged) []logged { return slices.Delete(b, 4, 5) }, "PK KEK", 0},
		"an option ROM allowed by its digest":    {before(logged{7, 0x800000e0, variable(vendorOfDB, "db", ownerOfTest+hash), ""}), "PK KEK", 0},
		"an option ROM allowed by a certificate": {before(logged{7, 0x800000e0, variable(vendorOfDB, "db", ownerOfTest+good), ""}), "PK KEK", 1},
		"an option ROM allowed by an unreadable": {before(logged{7, 0x800000e0, variable(vendorOfDB, "db", ownerOfTest+negative), ""}), "PK KEK", 0},
		"EV_EFI_SPDM_DEVICE_POLICY":              {before(logged{7, 0x800000e3, variable(vendorOfDB, "devdb", ""), ""}), "PK KEK", 0},
		"EV_EFI_SPDM_DEVICE_AUTHORITY":           {before(logged{7, 0x800000e4, variable(vendorOfDB, "devdb", ownerOfTest+good), ""}), "PK KEK", 0},
		"a vendor's variable":                    {before(logged{7, typeVariable, variable(vendorOfDB, "SecureBootPolicy", "x"), ""}), "PK KEK", 0},
		"a vendor's text":                        {first(logged{7, typeAction, "DMA Protection Enabled", ""}), "PK KEK", 0},
		"a vendor's data":                        {first(logged{7, 0x8401, "\x01", ""}), "PK KEK", 0},
		"an event without data":                  {first(logged{7, 0x8401, "", ""}), "PK KEK", 0},
		"dbx updated before the separator":       {before(logged{7, typeVariable, variable(vendorOfDB, "dbx", hashList()), ""}), "PK KEK", 0},
		"dbx twice of an unknown type": {func(b []logged) []logged {
			b[4].data = variable(vendorOfDB, "dbx", list(listOfNobody, "?"))
			return slices.Insert(b, 4, b[4])
		}, "PK KEK dbx", 0},
		"dbx updated after the separator":           {after(logged{7, typeVariable, variable(vendorOfDB, "dbx", list(listOfNobody, "?")), ""}), "PK KEK", 0},
		"something the system measured":             {after(logged{7, 0x0d, "x", ""}), "PK KEK", 0},
		"a boot loader's authority":                 {after(logged{7, 0x800000e0, variable(vendorOfDB, "db", ownerOfTest+good), ""}), "PK KEK", 1},
		"an authority of old shims, and more":       {after(logged{7, 0x800000e0, variable(vendorOfDB, "Shim", good) + "more", ""}), "PK KEK", 1},
		"an authority of old shims, logged as more": {after(logged{7, 0x800000e0, variable(vendorOfDB, "Shim", good) + "m", variable(vendorOfDB, "Shim", good)}), "PK KEK", 1},
	} {
		t.Run(name, func(t *testing.T) {
			state, err := stateOf(t, c.change(secureBootOfTest("\x01"))...)
			if err != nil || !state.Enabled {
				t.Fatalf("%+v, %v", state, err)
			}
			if unread := strings.Join(state.Unread, " "); unread != c.unread || len(state.Authorities) != c.authorities {
				t.Errorf("unread %q, %d authorities", unread, len(state.Authorities))
			}
		})
	}
}

// A hidden event before the separator could be anything, also Secure Boot off as some firmware
// measures it.
func TestSecureBootBesideWhatIsHidden(t *testing.T) {
	for n := range 5 {
		boot := slices.Insert(secureBootOfTest("\x01"), n, logged{7, 0x8401, "vendor", "measured"})
		_, err := stateOf(t, boot...)
		expectCheck(t, err, CheckSecureBoot)
		if text := err.Error(); !strings.Contains(text, "update") || strings.Contains(text, "RequireSecureBoot") {
			t.Errorf("%v does not say what helps", err)
		}
	}
}

// A machine without the variable logs it without a value: Secure Boot is off, and not unknown.
func TestSecureBootAbsent(t *testing.T) {
	boot := secureBootOfTest("")[:6]
	state, err := stateOf(t, boot...)
	if err != nil || state.Enabled || len(state.PermittedHashes) != 1 {
		t.Errorf("%+v, %v", state, err)
	}
	expectCheck(t, demand(t, boot, boot), CheckSecureBoot)
	for n := range 5 { // and none has a value
		name := []string{secureBootName, "PK", "KEK", "db", "dbx"}[n]
		boot[n].data = variable(globalVariable, name, "")
	}
	if state, err = stateOf(t, boot...); err != nil || state.Enabled || state.Unread != nil {
		t.Errorf("%+v, %v", state, err)
	}
	for _, value := range []string{"\x00\x00", "\x01\x01", "\x02"} {
		_, err := stateOf(t, secureBootOfTest(value)...)
		expectCheck(t, err, CheckSecureBoot)
	}
	// On, each of the keys has one.
	for n := 1; n < 4; n++ {
		on := secureBootOfTest("\x01")
		on[n].data = boot[n].data
		_, err := stateOf(t, on...)
		expectCheck(t, err, CheckSecureBoot)
	}
}

// Texts of the firmware are read with and without a zero at their end, and by their digests
// where the log gives other data.
func TestTextsOfFirmware(t *testing.T) {
	for _, end := range []string{"", "\x00"} {
		for _, data := range []string{dmaProtectionDisabled + end, "padded"} {
			state, err := stateOf(t, append([]logged{{7, typeAction, data, dmaProtectionDisabled + end}}, secureBootOfTest("\x01")...)...)
			if err != nil || !state.Enabled || !state.DMAProtectionDisabled {
				t.Errorf("%q: %+v, %v", data, state, err)
			}
			_, err = stateOf(t, append([]logged{{7, typeAction, data, debugMode + end}}, secureBootOfTest("\x01")...)...)
			expectCheck(t, err, CheckSecureBoot)
		}
	}
	state, err := stateOf(t, secureBootOfTest("\x01")...)
	if err != nil || state.DMAProtectionDisabled {
		t.Errorf("%+v, %v", state, err)
	}
}
