package tpmcert

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// CheckTPMDenied: the TPM's manufacturer and firmware are on the deny-list.
const CheckTPMDenied refusal.Check = "tpm-denied"

// DeniedTPM is a range of firmware that is refused, for example because its keys can be read
// out or computed.
//
// The certificate states the version with which the TPM left the factory, so an update does
// not take a TPM off the list. The running firmware in a statement is also checked against
// the list, if it is not obfuscated. An EK without a directory name (under a profile with
// NoDirectoryName) cannot be matched to the list by its certificate.
type DeniedTPM struct {
	// Vendor is the manufacturer's identifier in the TCG TPM Vendor ID Registry: as text of
	// up to 4 letters and digits, for example "IFX", or as in certificates, "id:" and 8
	// hexadecimal digits, for example "id:49465800". Neither case nor the padding of the
	// identifier to 4 bytes matters. A name such as "Infineon" is refused.
	Vendor string
	// Model, if not empty, is the only model that is meant, as written.
	Model string
	// First and Last bound the firmware version, inclusive: the major version in the high 16
	// bits and the minor version in the low 16 (TPM_PT_FIRMWARE_VERSION_1). Last must not be
	// less than First; 0 and 0xffffffff mean every version.
	First, Last uint32
	// Reason is for human readers, for example "CVE-2017-15361". It must not be empty.
	Reason string
}

// check returns the vendor that the entry means, or why it cannot be used.
func (d *DeniedTPM) check() (vendorID, error) {
	vendor, ok := vendorIDOf(d.Vendor)
	alien := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if !ok && len(d.Vendor) <= len(vendor) && !strings.ContainsFunc(d.Vendor, alien) {
		vendor, ok = vendorID{}, true
		copy(vendor[:], strings.ToUpper(d.Vendor))
	}
	switch {
	case d.Vendor == "":
		return vendor, errors.New("no Vendor")
	case !ok:
		return vendor, fmt.Errorf("vendor %q, want up to 4 letters and digits, or id: and 8 hexadecimal digits", d.Vendor)
	case d.Last < d.First:
		return vendor, fmt.Errorf("a range from %s to %s", firmwareText(d.First), firmwareText(d.Last))
	case d.Reason == "":
		return vendor, errors.New("no Reason")
	}
	return vendor, nil
}

// checkDenied checks a certificate's TPM against the list. A version that cannot be
// read counts as denied if any version of that TPM is.
func (v *EKVerifier) checkDenied(d DirectoryName) error {
	if firmware, ok := firmwareOf(d.Version); ok {
		return v.deny(d, "firmware", firmware, firmware)
	}
	return v.deny(d, "a version that cannot be read, "+strconv.Quote(d.Version), 0, math.MaxUint32)
}

// CheckFirmware checks the running firmware against the list: the firmwareVersion of a
// statement that is not obfuscated (Clock.Plain), whose high half is
// TPM_PT_FIRMWARE_VERSION_1.
func (v *EKVerifier) CheckFirmware(d DirectoryName, firmwareVersion uint64) error {
	if v == nil || v.known == nil {
		return errNotMade
	}
	firmware := uint32(firmwareVersion >> 32)
	return v.deny(d, "running firmware", firmware, firmware)
}

// deny refuses a TPM if one of its versions from first to last is on the list. A certificate without
// a manufacturer never matches.
func (v *EKVerifier) deny(d DirectoryName, got string, first, last uint32) error {
	vendor, ok := vendorIDOf(d.Manufacturer)
	if !ok {
		return nil
	}
	for _, denied := range v.denied[vendor] {
		if denied.Model != "" && denied.Model != d.Model || denied.First > last || denied.Last < first {
			continue
		}
		if first == last {
			got += " " + firmwareText(first)
		}
		return CheckTPMDenied.Refuse(strings.TrimSuffix("a TPM of "+denied.Vendor+" "+denied.Model, " ")+" with "+got,
			"none of "+firmwareText(denied.First)+" to "+firmwareText(denied.Last)+" ("+denied.Reason+")")
	}
	return nil
}

// firmwareOf parses tcg-at-tpmVersion: "id:" and the version in hexadecimal digits, 8 (major
// and minor, 16 bits each) or, in older certificates, 4 (8 bits each).
func firmwareOf(version string) (uint32, bool) {
	digits, ok := strings.CutPrefix(version, "id:")
	n, err := strconv.ParseUint(digits, 16, 32)
	if !ok || err != nil || len(digits) != 4 && len(digits) != 8 {
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

// vendorID is the identifier of a manufacturer in one form for all spellings: letters in
// upper case, padded with NUL bytes even if the original is padded with spaces.
type vendorID [4]byte

// vendorIDOf parses "id:" and 8 hexadecimal digits.
func vendorIDOf(manufacturer string) (id vendorID, ok bool) {
	digits, ok := strings.CutPrefix(manufacturer, "id:")
	if !ok || len(digits) != hex.EncodedLen(len(id)) {
		return id, false
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return vendorID{}, false
	}
	name := bytes.TrimRight(id[:], " \x00")
	clear(id[len(name):])
	for n, c := range name {
		if 'a' <= c && c <= 'z' {
			name[n] = c - 'a' + 'A'
		}
	}
	return id, true
}

// text returns the identifier without its padding, or "" if that is not printable ASCII.
func (id vendorID) text() string {
	text := strings.TrimRight(string(id[:]), "\x00")
	if strings.ContainsFunc(text, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return ""
	}
	return text
}
