package node

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

// vendorRootsJSON is the list of the vendors' roots in docs/vendor-roots.md.
//
//go:embed vendor-roots.json
var vendorRootsJSON []byte

// vendorRoot is a certificate of the list.
type vendorRoot struct {
	Vendor  string `json:"vendor"`
	Subject string `json:"subject"`
	Issuer  string `json:"issuer"`  // the common name; empty for a root
	SHA256  string `json:"sha256"`  // of the DER, in lower-case hexadecimal
	Ends    string `json:"ends"`    // the last day, as 2006-01-02
	Address string `json:"address"` // of the download; empty if unknown
	Source  string `json:"source"`  // of the copy that was hashed
}

// vendorRoots returns the list by SHA256.
func vendorRoots() (map[string]vendorRoot, error) {
	var all []vendorRoot
	if err := json.Unmarshal(vendorRootsJSON, &all); err != nil {
		return nil, err
	}
	known := make(map[string]vendorRoot, len(all))
	for _, r := range all {
		known[r.SHA256] = r
	}
	return known, nil
}

// roots is the command roots check FILE...
func roots(args []string, stdout io.Writer, now time.Time) error {
	if len(args) < 2 || args[0] != "check" {
		return fmt.Errorf("%w: want roots check, and one file or more", errCommandLine)
	}
	known, err := vendorRoots()
	if err != nil {
		return err
	}
	var failed []error
	unknown := 0
	for _, path := range args[1:] {
		text, err := files.Read(path, configfile.MaxSize)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		certificates, err := certificatesIn(text)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", path, err))
			continue
		}
		for i, der := range certificates {
			line, isKnown := lookUp(known, der, now)
			if !isKnown {
				unknown++
			}
			if _, err := fmt.Fprintf(stdout, "%s %d: %s\n", refusal.Text(path), i+1, line); err != nil {
				return err
			}
		}
	}
	if unknown != 0 {
		failed = append(failed, fmt.Errorf("unknown certificates: %d: compare their digests with another source, such as the vendor's own page, before you trust them", unknown))
	}
	return errors.Join(failed...)
}

// lookUp looks a certificate up in the list.
func lookUp(known map[string]vendorRoot, der []byte, now time.Time) (line string, isKnown bool) {
	sum := sha256.Sum256(der)
	digest := hex.EncodeToString(sum[:])
	r, isKnown := known[digest]
	switch {
	case !isKnown:
		subject := "an invalid certificate"
		if c, err := x509.ParseCertificate(der); err == nil {
			subject = refusal.Text(c.Subject.String())
		}
		return fmt.Sprintf("unknown: %s, SHA-256 %s", subject, digest), false
	case now.UTC().Format(time.DateOnly) > r.Ends:
		return fmt.Sprintf("expired on %s: %s, %s", r.Ends, r.Vendor, r.Subject), true
	}
	return fmt.Sprintf("known: %s, %s, until %s", r.Vendor, r.Subject, r.Ends), true
}

// certificatesIn returns the certificates of a file, in PEM with text around them, or in DER. It refuses
// a file without one, and PEM blocks of other types.
func certificatesIn(text []byte) ([][]byte, error) {
	begin := []byte("-----BEGIN")
	if !bytes.Contains(text, begin) {
		return certificatesInDER(text)
	}
	var found [][]byte
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, refusal.Config("a file", "with "+refusal.Quote(block.Type), "certificates only")
		}
		found = append(found, block.Bytes)
	}
	if blocks := bytes.Count(text, begin); blocks != len(found) { // pem skips invalid blocks
		return nil, refusal.Config("a file", fmt.Sprintf("with %d PEM blocks, of which %d can be read", blocks, len(found)), "certificates only")
	}
	return found, nil
}

func certificatesInDER(text []byte) ([][]byte, error) {
	parsed, err := x509.ParseCertificates(text)
	if err == nil && len(parsed) == 0 {
		err = errors.New("an empty file")
	}
	if err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "a file without certificates in PEM or DER", Err: err}
	}
	return tpmcert.CertificatesDER(parsed), nil
}
