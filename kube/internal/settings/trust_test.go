package settings

import (
	"encoding/hex"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestCRLsIn reads every list of a file: one that was skipped would revoke nothing.
func TestCRLsIn(t *testing.T) {
	block := func(kind, text string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(text)}))
	}
	one, two := block("X509 CRL", "1"), block("X509 CRL", "2")
	for name, row := range map[string]struct{ text, want string }{ // "": it is refused
		"in DER":            {"\x300", "\x300"},
		"one":               {one, "1"},
		"two":               {one + two, "1 2"},
		"with text":         {"Certificate Revocation List (CRL):\n" + one + "\nanother\n" + two + "end", "1 2"},
		"with CRLF":         {strings.ReplaceAll(one+two, "\n", "\r\n"), "1 2"},
		"a certificate":     {one + block("CERTIFICATE", "3"), ""},
		"one before it":     {block("CERTIFICATE", "3") + one, ""},
		"a second, cut off": {one + two[:len(two)-8], ""},
		"no base64":         {one + strings.Replace(two, "Mg==", "M!==", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			lists, err := crlsIn([]byte(row.text))
			var got []string
			for _, list := range lists {
				got = append(got, string(list))
			}
			if (err != nil) != (row.want == "") || !slices.Equal(got, strings.Fields(row.want)) {
				t.Errorf("got %q, %v, want %q", got, err, row.want)
			}
		})
	}
}

// TestTPMsTrusted has every field of the section tpm decide about a machine with an EK.
func TestTPMsTrusted(t *testing.T) {
	w := newWorld(t)
	device := tpmsim.New(t, tpmsim.Options{CA: w.vendor})
	origin := tpm.EKRSA2048()
	ek := testkit.Must(tpmcert.ParseEK(device.EKCertificate(tpmsim.RSA2048).Raw))
	const vendor = "ekIssuers: [{rootsFile: @/ak.pem, profile: tcg}]"
	tpmlab.ExtendPCR(t, device, 0)
	tpmlab.ExtendPCR(t, device, 7)
	measured := hex.EncodeToString(tpmlab.ExtendedPCR())
	good, bad := "{0: '"+measured+"', 7: '"+measured+"'}", "{7: '"+strings.Repeat("01", 32)+"'}"
	for name, row := range map[string]struct {
		tpm    string
		quotes bool
		want   refusal.Check // empty: it joins
	}{
		"of its vendor":             {vendor, false, ""},
		"of another vendor":         {"ekIssuers: [{rootsFile: @/nitro.pem, profile: tcg}]", false, tpmcert.CheckCertificateChain},
		"on the list":               {"allowedEKs: ['" + string(ek.Identity()) + "']", false, ""},
		"not on the list":           {"allowedEKs: ['ek:sha256:" + zeros[:64] + "']", false, "ek-untrusted"},
		"no revocation list":        {"ekIssuers: [{rootsFile: @/ak.pem, profile: tcg, crlFiles: [@/list.crl]}]", false, ""},
		"no revocation list, asked": {"ekIssuers: [{rootsFile: @/ak.pem, profile: tcg, crlFiles: [@/list.crl], requireCRL: true}]", false, "certificate-revocation-unknown"},
		"good PCRs":                 {vendor + ", goodPCRs: [" + good + "]", true, ""},
		"the second good PCRs":      {vendor + ", goodPCRs: [" + bad + ", " + good + "]", true, ""},
		"other PCRs":                {vendor + ", goodPCRs: [" + bad + "]", true, "pcr-policy"},
		"a PCR that is not quoted":  {vendor + ", goodPCRs: [{8: '" + strings.Repeat("01", 32) + "'}]", true, statement.CheckPCRNotQuoted},
		"no quote":                  {vendor + ", goodPCRs: [" + good + "]", false, "quote-missing"},
		"an empty quote policy":     {vendor + ", goodPCRs: []", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			options := tpm.ProverOptions{EK: &origin, Intermediates: [][]byte{w.vendor.EKIntermediate().Raw}}
			if row.quotes {
				options.Quote = tpm.DefaultPCRs()
			}
			prover := testkit.Must(tpm.NewProver(device, tpm.AKSource{Template: tpm.AKTemplateECDSAP256()}, options))
			p := w.plane(t, "machines: [{nodeName: node-1, identity: '"+string(ek.Identity())+"'}]",
				"akIssuers: [{rootsFile: @/ak.pem, profile: google}]", row.tpm, "road: ak", "road: ek, identityClass: RSA-2048")
			if err := p.join(t, prover, "node-1", csr.SignerClientTPM); row.want == "" && err != nil || row.want != "" && !errors.Is(err, row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
			if err := prover.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRestored: after a restore no machine is admitted by first use, until every certificate has ended.
func TestRestored(t *testing.T) {
	w := newWorld(t)
	prover := w.provers(t)["tpm"]
	for ago, want := range map[time.Duration]refusal.Check{23 * time.Hour: membership.CheckRegistryResting, 25 * time.Hour: ""} {
		p := w.plane(t, "machines: [{nodeName: node-1}]", "profile: google}", "profile: google, projects: [example-project]}", "mode: Inventory", "mode: FirstUse, restoredAt: "+time.Now().Add(-ago).UTC().Format(time.RFC3339))
		if err := p.join(t, prover, "node-1", csr.SignerClientTPM); want == "" && err != nil || want != "" && !errors.Is(err, want) {
			t.Errorf("%s after the restore: %v, want %q", ago, err, want)
		}
	}
}

func FuzzCRLsIn(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add([]byte("\x30\x00"))
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("1")}))
	f.Fuzz(func(t *testing.T, text []byte) {
		lists, err := crlsIn(text)
		if block, _ := pem.Decode(text); err == nil && (len(lists) == 0 || block == nil && string(lists[0]) != string(text)) {
			t.Errorf("got %q", lists)
		}
	})
}
