package attest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// CheckTPMDenied: the TPM's manufacturer and firmware are on the deny-list.
const CheckTPMDenied Check = "tpm-denied"

// DeniedTPM is a range of firmware that is refused, for example one whose keys can be
// read out or computed.
//
// The certificate states the version that the TPM left the factory with, so an update
// does not take a TPM off the list; what a statement says of the running firmware is
// held against the list too, where it is not obfuscated. An EK without a directory
// name (an allow-list's, a platform's) cannot be on the list by its certificate.
type DeniedTPM struct {
	// Vendor is the manufacturer as [DirectoryName] has it in Vendor, for example
	// "IFX". It must not be empty.
	Vendor string
	// Model, where it is not empty, is the one model that is meant, as written.
	Model string
	// First and Last bound the firmware version, both included: the major version in
	// the high 16 bits and the minor one in the low (TPM_PT_FIRMWARE_VERSION_1). Last
	// must not be under First; 0 and 0xffffffff mean every version.
	First, Last uint32
	// Reason is for people, for example "CVE-2017-15361". It must not be empty.
	Reason string
}

func (d *DeniedTPM) check() error {
	switch {
	case d.Vendor == "":
		return errors.New("no Vendor")
	case d.Last < d.First:
		return fmt.Errorf("a range from %s to %s", firmwareText(d.First), firmwareText(d.Last))
	case d.Reason == "":
		return errors.New("no Reason")
	}
	return nil
}

// checkDenied holds what a certificate states against the list. A version that cannot
// be read counts as denied where another version of that TPM is.
func (v *EKVerifier) checkDenied(d DirectoryName) error {
	firmware, ok := firmwareOf(d.Version)
	for i := range v.denied {
		denied := &v.denied[i]
		if d.Vendor != denied.Vendor || denied.Model != "" && d.Model != denied.Model {
			continue
		}
		if !ok {
			return denied.refuse("a version that cannot be read, " + strconv.Quote(d.Version))
		}
		if denied.First <= firmware && firmware <= denied.Last {
			return denied.refuse("firmware " + firmwareText(firmware))
		}
	}
	return nil
}

// checkFirmware holds the running firmware against the list: the firmwareVersion of a
// statement that is not obfuscated (Clock.Plain), whose high half is
// TPM_PT_FIRMWARE_VERSION_1.
func (v *EKVerifier) checkFirmware(d DirectoryName, firmwareVersion uint64) error {
	firmware := uint32(firmwareVersion >> 32)
	for i := range v.denied {
		denied := &v.denied[i]
		if d.Vendor == denied.Vendor && (denied.Model == "" || d.Model == denied.Model) &&
			denied.First <= firmware && firmware <= denied.Last {
			return denied.refuse("running firmware " + firmwareText(firmware))
		}
	}
	return nil
}

func (d *DeniedTPM) refuse(got string) error {
	model := d.Model
	if model != "" {
		model = " " + model
	}
	return &Error{Check: CheckTPMDenied, Got: "a TPM of " + d.Vendor + model + " with " + got,
		Want: "none of " + firmwareText(d.First) + " to " + firmwareText(d.Last) + " (" + d.Reason + ")"}
}

// firmwareOf reads tcg-at-tpmVersion: "id:" and the version in hexadecimal digits, 8
// (major and minor, 16 bits each) or, in older certificates, 4 (8 bits each).
func firmwareOf(version string) (uint32, bool) {
	digits, ok := strings.CutPrefix(version, "id:")
	if !ok || len(digits) != 4 && len(digits) != 8 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil {
		return 0, false
	}
	if len(digits) == 4 {
		n = n>>8<<16 | n&0xff
	}
	return uint32(n), true
}

func firmwareText(v uint32) string {
	return strconv.Itoa(int(v>>16)) + "." + strconv.Itoa(int(v&0xffff))
}
