package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// Where the tests' TPMs have a key's template, nonce and certificate.
const (
	certificateAt tpm2.TPMHandle = 0x01800a00
	templateAt    tpm2.TPMHandle = 0x01800a01
	nonceAt       tpm2.TPMHandle = 0x01800a02
)

// operatorsKey is an object of the field ak, in JSON, with changes of it.
func operatorsKey(changes ...string) string {
	return strings.NewReplacer(changes...).Replace(`{"templateIndex": "0x01800a01", "nonceIndex": "0x01800a02", "certificateIndex": "0x01800a00"}`)
}

// configOf reads a file with a section tpm.
func configOf(section string) (authenticator.Config, error) {
	s, err := parseSettings([]byte("apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\nnodeName: node-1\nevidence: {tpm: " + section + "}\n"))
	if err != nil {
		return authenticator.Config{}, err
	}
	return s.config(nil)
}

// kindOf reads a file with a section tpm, of a key with a certificate.
func kindOf(section string) (*preparedTPM, error) {
	c, err := configOf(section)
	k, _ := c.Kind.(*preparedTPM)
	return k, err
}

// written is a file of a test.
func written(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	testkit.MustDo(os.WriteFile(path, text, 0o600))
	return path
}

// TestAKSettings reads keys in the form of an object.
func TestAKSettings(t *testing.T) {
	template := written(t, "ak.tpmt", tpm2.Marshal(tpm.AKTemplateECDSAP384()))
	for name, row := range map[string]struct {
		ak   string
		want tpm.AKSource
		file string
	}{
		"indexes":         {operatorsKey(), tpm.AKSource{TemplateIndex: templateAt, NonceIndex: nonceAt, CertificateIndex: certificateAt}, ""},
		"without a nonce": {operatorsKey(`"nonceIndex": "0x01800a02", `, ""), tpm.AKSource{TemplateIndex: templateAt, CertificateIndex: certificateAt}, ""},
		"a handle":        {`{handle: "0x81020001", certificatesFile: /c.pem}`, tpm.AKSource{Handle: 0x81020001}, "/c.pem"},
		"a template":      {`{template: ` + template + `, certificateIndex: "0x01c10000"}`, tpm.AKSource{Template: tpm.AKTemplateECDSAP384(), CertificateIndex: 0x01c10000}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := testkit.Must(kindOf("{ak: " + row.ak + "}"))
			got := k.AK
			if (got.Template == nil) != (row.want.Template == nil) || got.Template != nil && !bytes.Equal(tpm2.Marshal(got.Template), tpm2.Marshal(row.want.Template)) {
				t.Errorf("template %+v", got.Template)
			}
			got.Template, row.want.Template = nil, nil
			if got != row.want || k.ak.CertificatesFile != row.file || k.Options.EK != nil || k.PersistentEK != 0 {
				t.Errorf("got %+v, file %q", k.TPM, k.ak.CertificatesFile)
			}
		})
	}
	if k, err := kindOf(`{akPasswordFile: /p, ak: {handle: "0x81020001", certificatesFile: /c.pem}}`); err != nil || k.AKPasswordFile != "/p" {
		t.Errorf("a password of a persistent key: %v", err)
	}
	for _, section := range []string{"{}", `{ak: ""}`, "{ak: }"} {
		if k, err := kindOf(section); err != nil || k != nil {
			t.Errorf("%s: got %+v, %v", section, k, err)
		}
	}
}

// TestAKSettingsRefused: each mistake is an error that names the field.
func TestAKSettingsRefused(t *testing.T) {
	free := tpm.AKTemplateECDSAP256()
	free.ObjectAttributes.Restricted = false
	decrypts := tpm.AKTemplateRSA2048SHA256()
	decrypts.ObjectAttributes.Decrypt = true
	for name, row := range map[string]struct{ ak, want string }{
		"nothing":                         {"{}", "evidence.tpm.ak no source of the key, want one of template, templateIndex, handle"},
		"empty fields":                    {`{handle: "", certificateIndex: ""}`, "no source of the key"},
		"an index without a certificate":  {operatorsKey(`, "certificateIndex": "0x01800a00"`, ""), "no source of the key's certificate, want one of certificateIndex, certificatesFile"},
		"a certificate without a key":     {`{certificateIndex: "0x01800a00"}`, "no source of the key, want"},
		"two sources":                     {operatorsKey("{", `{handle: "0x81020001", `), "templateIndex and handle of the key, want one"},
		"two certificates":                {operatorsKey("{", `{certificatesFile: /c.pem, `), "certificateIndex and certificatesFile of the key's certificate"},
		"a nonce without an index":        {`{handle: "0x81020001", nonceIndex: "0x01800a02", certificateIndex: "0x01800a00"}`, `evidence.tpm.ak.nonceIndex "0x01800a02", want templateIndex`},
		"a certificate at index 0":        {operatorsKey("0x01800a00", "0x00000000"), `evidence.tpm.ak.certificateIndex "0x00000000", want an NV index from "0x01000000" to "0x01ffffff"`},
		"a template at a key":             {operatorsKey("0x01800a01", "0x81800a01"), "evidence.tpm.ak.templateIndex"},
		"a nonce above NV":                {operatorsKey("0x01800a02", "0x02000000"), "evidence.tpm.ak.nonceIndex"},
		"a handle in NV":                  {`{handle: "0x01800a00", certificatesFile: /c.pem}`, `evidence.tpm.ak.handle "0x01800a00", want a handle from "0x81000000"`},
		"an index without 0x":             {operatorsKey("0x01800a00", "01800a00"), "evidence.tpm.ak.certificateIndex"},
		"an index in capitals":            {operatorsKey("0x01800a00", "0x01800A00"), "evidence.tpm.ak.certificateIndex"},
		"an index of 9 digits":            {operatorsKey("0x01800a00", "0x101800a00"), "evidence.tpm.ak.certificateIndex"},
		"an index that YAML has read":     {`{handle: "0x81020001", certificateIndex: 0x01800a00}`, "certificateIndex: a number, want text: put it in quotes"},
		"an unknown field":                {operatorsKey("nonceIndex", "nonce"), `unknown field "nonce"`},
		"a list":                          {"[p-256]", "evidence.tpm.ak"},
		"a number":                        {"256", `evidence.tpm.ak "256"`},
		"no such template":                {`{template: /nonexistent, certificateIndex: "0x01800a00"}`, "/nonexistent"},
		"a template in PEM":               {`{template: ` + written(t, "t", []byte("-----BEGIN PUBLIC KEY-----\n")) + `, certificateIndex: "0x01800a00"}`, "evidence.tpm.ak.template"},
		"a template that is not whole":    {`{template: ` + written(t, "t", tpm2.Marshal(free)[:40]) + `, certificateIndex: "0x01800a00"}`, "evidence.tpm.ak.template"},
		"a template of a free key":        {`{template: ` + written(t, "t", tpm2.Marshal(free)) + `, certificateIndex: "0x01800a00"}`, "want the template of a restricted signing key"},
		"a template of a key for secrets": {`{template: ` + written(t, "t", tpm2.Marshal(decrypts)) + `, certificateIndex: "0x01800a00"}`, "without decrypt"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kindOf("{ak: " + row.ak + "}")
			if err == nil || !strings.Contains(err.Error(), row.want) || !errors.Is(err, refusal.CheckConfig) && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("got %v, want an error with %q", err, row.want)
			}
		})
	}
	for section, want := range map[string]string{
		"{ek: rsa-2048, ak: " + operatorsKey() + "}":                                                        "evidence.tpm.ek",
		"{persistentEK: none, ak: " + operatorsKey() + "}":                                                  "persistentEK",
		"{akPasswordFile: /p, ak: " + operatorsKey() + "}":                                                  "evidence.tpm.akPasswordFile",
		"{intermediates: /nonexistent, ak: " + operatorsKey() + "}":                                         "/nonexistent",
		`{ekChainFromNV: true, quote: false, eventLog: /log, ak: ` + operatorsKey() + `}`:                   "evidence.tpm.eventLog",
		`{ak: {handle: "0x81020001", certificatesFile: /c.pem}, intermediates: ` + selfSigned(t, "i") + `}`: "evidence.tpm.intermediates",
	} {
		if _, err := kindOf(section); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", section, err, want)
		}
	}
}

// selfSigned is a file with the root of a CA of its own.
func selfSigned(t *testing.T, name string) string {
	t.Helper()
	ca := testkit.Must(tpmsim.NewCA(tpmsim.CAOptions{}))
	return written(t, name, pemOf("CERTIFICATE", ca.Root().Raw))
}

// TestAKCertificate opens TPMs whose key has a wrong certificate: that is an error
// before a message is made. One that has been renewed, in NV or in the file, is used at once.
func TestAKCertificate(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{
		{Algorithm: tpmsim.P256, TemplateIndex: templateAt, NonceIndex: nonceAt, CertificateIndex: certificateAt},
		{Algorithm: tpmsim.RSA2048, CertificateIndex: 0x01800a03},
	}})
	free := tpm.AKTemplateECDSAP256()
	free.ObjectAttributes.Restricted = false
	whole := device.AKCertificate(tpmsim.P256).Raw
	renewed := testkit.Must(device.CertifyAK(device.AKPublic(tpmsim.P256)))
	for index, data := range map[tpm2.TPMHandle][]byte{
		0x01800a04: tpm2.Marshal(free), 0x01800a05: bytes.Repeat([]byte{0xff}, 512), 0x01800a06: whole[:len(whole)/2], 0x01800a07: renewed.Raw,
	} {
		testkit.MustDo(device.WriteNV(index, data))
	}
	path := written(t, "ak.pem", pemOf("CERTIFICATE", whole))
	fromFile := func(path string) string {
		return operatorsKey(`"certificateIndex": "0x01800a00"`, `"certificatesFile": "`+path+`"`)
	}
	ended := device.AKCertificate(tpmsim.P256).NotAfter.Add(time.Second)
	for name, row := range map[string]struct {
		ak   string
		now  time.Time
		want string // "": it opens
	}{
		"as it is":                  {operatorsKey(), time.Now(), ""},
		"from a file":               {fromFile(path), time.Now(), ""},
		"renewed":                   {operatorsKey("0x01800a00", "0x01800a07"), time.Now(), ""},
		"ended":                     {operatorsKey(), ended, "evidence.tpm.ak.certificateIndex: configuration: got a certificate that expired at"},
		"ended in a file":           {fromFile(path), ended, "evidence.tpm.ak.certificatesFile: configuration: got a certificate that expired at"},
		"another key's":             {operatorsKey("0x01800a00", "0x01800a03"), time.Now(), "evidence.tpm.ak.certificateIndex: configuration: got a certificate of another key"},
		"another key's in a file":   {fromFile(selfSigned(t, "other.pem")), time.Now(), "evidence.tpm.ak.certificatesFile: configuration: got a certificate of another key"},
		"without the nonce":         {operatorsKey(`"nonceIndex": "0x01800a02", `, ""), time.Now(), "of another key"},
		"no such index":             {operatorsKey("0x01800a00", "0x01800aff"), time.Now(), "evidence.tpm.ak.certificateIndex: tpmkey: certificate in NV index 0x01800aff"},
		"no such template":          {operatorsKey("0x01800a01", "0x01800aff"), time.Now(), "no such NV index"},
		"no such nonce":             {operatorsKey("0x01800a02", "0x01800aff"), time.Now(), "nonce: "},
		"no such file":              {fromFile("/nonexistent"), time.Now(), "evidence.tpm.ak.certificatesFile: "},
		"an empty file":             {fromFile(written(t, "empty.pem", nil)), time.Now(), "certificates in PEM: none"},
		"not whole":                 {operatorsKey("0x01800a00", "0x01800a05"), time.Now(), tpmkey.ErrNVCertificateIncomplete.Error()},
		"cut":                       {operatorsKey("0x01800a00", "0x01800a06"), time.Now(), "evidence.tpm.ak.certificateIndex: "},
		"a template of a free key":  {operatorsKey("0x01800a01", "0x01800a04", `"nonceIndex": "0x01800a02", `, ""), time.Now(), "no verifier accepts it: ak-attributes"},
		"a template that is a cert": {operatorsKey("0x01800a01", "0x01800a00"), time.Now(), "template in NV index 0x01800a00"},
		"no such key":               {`{handle: "0x81020001", certificateIndex: "0x01800a00"}`, time.Now(), "0x81020001"},
	} {
		t.Run(name, func(t *testing.T) {
			k := testkit.Must(kindOf("{device: " + strings.TrimPrefix(device.TCTI(), "swtpm:path=") + ", ak: " + row.ak + "}"))
			k.now = func() time.Time { return row.now }
			for range 2 { // the second time the key is known
				p, err := k.Open(t.Context())
				if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
					t.Fatalf("got %v, want an error with %q", err, row.want)
				}
				if err != nil {
					continue
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Run("replaced while the program runs", func(t *testing.T) {
		k := testkit.Must(kindOf("{device: " + strings.TrimPrefix(device.TCTI(), "swtpm:path=") + ", ak: " + fromFile(path) + "}"))
		for _, row := range []struct {
			der  []byte
			want bool
		}{{whole, true}, {device.AKCertificate(tpmsim.RSA2048).Raw, false}, {renewed.Raw, true}} {
			testkit.MustDo(os.WriteFile(path, pemOf("CERTIFICATE", row.der), 0o600))
			p, err := k.Open(t.Context())
			if (err == nil) != row.want {
				t.Fatalf("got %v, want %v", err, row.want)
			}
			if err == nil {
				err = p.Close()
			}
			if err != nil && row.want {
				t.Error(err)
			}
		}
	})
}
