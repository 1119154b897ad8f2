package tpmcert

import (
	"crypto/x509"
	"errors"
	"fmt"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

func TestFirmwareOf(t *testing.T) {
	for version, want := range map[string]uint32{
		"id:00070055": 7<<16 | 0x55, "id:0D0B": 0xd<<16 | 0xb, "id:00000000": 0, "id:ffffFFFF": 0xffffffff,
	} {
		t.Run(version, func(t *testing.T) {
			if got, ok := firmwareOf(version); !ok || got != want {
				t.Errorf("%s: %#x, %t", version, got, ok)
			}
		})
	}
	for _, version := range []string{"", "id:", "00070055", "id:7.85", "id:000700550", "id:+0070055", "id:0007005g", "id:070055"} {
		if got, ok := firmwareOf(version); ok {
			t.Errorf("%q: %#x", version, got)
		}
	}
	if got := firmwareText(7<<16 | 0x55); got != "7.85" {
		t.Error(got)
	}
}

// The range counts, both ends included; an unreadable version is refused where any of the TPM's
// versions is.
func TestDeniedTPM(t *testing.T) {
	config := trusting(EKProfileTCG(), tpmlab.Sign(t, nil, "root", nil))
	config.Denied = []DeniedTPM{
		{Vendor: "IFX", First: 7<<16 | 40, Last: 7<<16 | 61, Reason: "CVE-2017-15361"},
		{Vendor: "STM", Model: "ST33", First: 0, Last: 0xffffffff, Reason: "all of them"},
	}
	v := ekVerifierOf(t, config)
	for _, c := range []struct {
		manufacturer, model, version string
		denied                       bool
	}{
		{"id:49465800", "SLB9670", "id:00070027", false},
		{"id:49465800", "SLB9670", "id:00070028", true},
		{"id:49465800", "SLB9670", "id:0007003D", true},
		{"id:49465800", "SLB9670", "id:0007003E", false},
		{"id:49465800", "SLB9670", "id:0728", true}, // the short form
		{"id:49465800", "SLB9670", "seven", true},
		{"id:494E5443", "PTT", "id:00070028", false},
		{"id:494E5443", "PTT", "seven", false},
		{"id:53544d20", "ST33", "id:00490004", true},
		{"id:53544d20", "ST34", "id:00490004", false},
		{"", "", "", false},
	} {
		t.Run(fmt.Sprint(c.denied), func(t *testing.T) {
			d := DirectoryName{Manufacturer: c.manufacturer, Model: c.model, Version: c.version}
			if err := v.checkDenied(d); errors.Is(err, CheckTPMDenied) != c.denied || !c.denied && err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			if firmware, ok := firmwareOf(c.version); ok {
				if err := v.CheckFirmware(d, uint64(firmware)<<32|0xffff); errors.Is(err, CheckTPMDenied) != c.denied {
					t.Errorf("running %+v: %v", c, err)
				}
			}
		})
	}
	err := v.checkDenied(DirectoryName{Manufacturer: "id:49465800", Version: "id:00070028"})
	if got, want := err.Error(), "tpm-denied: got a TPM of IFX with firmware 7.40, want none of 7.40 to 7.61 (CVE-2017-15361)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A denied TPM is refused though its chain holds and its key is on the list.
func TestDeniedBeatsTrust(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	leaf := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), nil) // Infineon 7.85
	p, err := ParseEKPresented([][]byte{leaf.Raw}, nil)
	testkit.NoError(t, err)
	c := trusting(EKProfileTCG(), root)
	c.Allowed = []attest.Identity{p.Identity()}
	c.Denied = []DeniedTPM{{Vendor: "IFX", First: 7<<16 | 85, Last: 7<<16 | 85, Reason: "test"}}
	if _, err := verifyAt(ekVerifierOf(t, c), tpmlab.Time, leaf); !errors.Is(err, CheckTPMDenied) {
		t.Errorf("%v", err)
	}
	c.Denied[0].First++
	c.Denied[0].Last++
	if _, err := verifyAt(ekVerifierOf(t, c), tpmlab.Time, leaf); err != nil {
		t.Errorf("the next version: %v", err)
	}
	other := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) {
		c.ExtraExtensions[0] = tpmlab.EKDirectory("id:49465800", "SLB9670", "id:00070056")
	})
	if _, err := verifyAt(ekVerifierOf(t, c), tpmlab.Time, other); !errors.Is(err, CheckTPMDenied) {
		t.Errorf("%v", err)
	}
}

// One manufacturer has one form, and every spelling of it denies; what can be none is an
// error.
func TestDeniedVendorSpellings(t *testing.T) {
	infineon, stm, ibm := "id:49465800", "id:53544D20", "id:00001014"
	for _, c := range []struct {
		vendor, manufacturer string
		ok, denied           bool
	}{
		{"IFX", infineon, true, true},
		{"ifx", infineon, true, true},
		{"IFX", "id:69667800", true, true},
		{infineon, infineon, true, true},
		{"id:69667820", infineon, true, true},
		{"IFX", stm, true, false},
		{"STM", stm, true, true},
		{"STM", "id:53544D00", true, true},
		{"id:53544d00", stm, true, true},
		{"id:00001014", ibm, true, true},
		{"IBM", ibm, true, false}, // a number, and not these letters
		{"id:00000000", "id:00000000", true, true},
		{"IFX", "", true, false},
		{"id:00000000", "", true, false},
		{"INTC", "id:494E5443", true, true},
		{"z0a", "id:5A304100", true, true},
		{"9AZ", "id:39415A00", true, true},
		{"", infineon, false, false},
		{"Infineon", infineon, false, false},
		{"INTCC", "id:494E5443", false, false},
		{"IFX ", infineon, false, false},
		{"STM\x00", stm, false, false},
		{"I/X", infineon, false, false},
		{"I:X", infineon, false, false},
		{"I@X", infineon, false, false},
		{"I[X", infineon, false, false},
		{"I`X", infineon, false, false},
		{"I{X", infineon, false, false},
		{"id:4946580", infineon, false, false},
		{"49465800", infineon, false, false},
	} {
		t.Run(c.vendor+" and "+c.manufacturer, func(t *testing.T) {
			config := trusting(EKProfileTCG(), tpmlab.Sign(t, nil, "root", nil))
			config.Denied = []DeniedTPM{{Vendor: c.vendor, Last: 0xffffffff, Reason: "a test"}}
			v, err := NewEKVerifier(config)
			if (err == nil) != c.ok {
				t.Fatalf("got %v, want an error: %t", err, !c.ok)
			}
			if err != nil {
				return
			}
			d := DirectoryName{Manufacturer: c.manufacturer, Version: "id:00070055"}
			if err := v.checkDenied(d); errors.Is(err, CheckTPMDenied) != c.denied || !c.denied && err != nil {
				t.Errorf("got %v, denied: %t", err, c.denied)
			}
			if err := v.CheckFirmware(d, 7<<48); errors.Is(err, CheckTPMDenied) != c.denied || !c.denied && err != nil {
				t.Errorf("running: got %v, denied: %t", err, c.denied)
			}
		})
	}
}
