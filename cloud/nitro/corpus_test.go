package nitro

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// rootG1SHA256 is from the documentation of VerifierConfig.
const rootG1SHA256 = "641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b"

// corpus is the folder of recorded documents; it skips the test without that folder.
func corpus(t testing.TB) string {
	t.Helper()
	root := os.Getenv("NODEATTEST_CORPUS")
	if root == "" {
		t.Skip("NODEATTEST_CORPUS is not set: no recorded documents")
	}
	return filepath.Join(root, "cloud", "nitro")
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	return testkit.Must(os.ReadFile(filepath.Join(corpus(t), name)))
}

// recordedVerifier trusts AWS' root.
func recordedVerifier(t testing.TB) *Verifier {
	t.Helper()
	block, _ := pem.Decode(readFile(t, "root-g1.pem"))
	if block == nil {
		t.Fatal("no PEM")
	}
	sum := sha256.Sum256(block.Bytes)
	if hex.EncodeToString(sum[:]) != rootG1SHA256 {
		t.Errorf("a root of digest %x", sum)
	}
	root := testkit.Must(x509.ParseCertificate(block.Bytes))
	return testkit.Must(NewVerifier(VerifierConfig{Roots: []*x509.Certificate{root}}))
}

// today is when the recorded documents were looked at: all are too old.
var today = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// TestRecordings: each recorded document gives the known facts at its own time, and
// fails on its age alone today. Enclaves' documents have a good signature and a good chain,
// and are refused as enclaves'.
func TestRecordings(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus(t), "*.cose"))
	if err != nil || len(files) != 5 {
		t.Fatalf("%d recorded documents: %v", len(files), err)
	}
	v := recordedVerifier(t)
	for _, r := range []struct {
		file, identity, made       string
		enclave                    bool
		pcrs                       int
		nonce, userData, publicKey int // sizes, -1 for null
	}{
		{"tpm-reclaim", "aws:aws/us-east-2/i-05473b8eb5f575457", "2026-06-18T05:10:49.634Z", false, 24, 32, -1, -1},
		{"tpm-vaportpm", "aws:aws/us-east-1/i-01cfb383223e42522", "2026-02-03T10:12:02.437Z", false, 24, 32, -1, 65},
		{"enclave-2021-anjuna", "aws:aws/us-east-2/i-078824548edcf6519", "2021-03-17T22:01:55.685Z", true, 16, -1, -1, -1},
		{"enclave-2024-anjuna-full", "aws:aws/us-east-2/i-0e4fe5de7ee5abe78", "2024-01-24T18:14:25.635Z", true, 16, 6, 13, 294},
		{"enclave-2024-marlin", "aws:aws/ap-south-1/i-0df237f0418feb41e", "2024-02-26T07:02:01.439Z", true, 16, -1, 42, 32},
	} {
		t.Run(r.file, func(t *testing.T) {
			data := readFile(t, r.file+".cose")
			made := testkit.Must(time.Parse(time.RFC3339, r.made))
			d := testkit.Must(parse(data))
			if string(d.Identity()) != r.identity || !d.Timestamp.Equal(made) || d.enclave != r.enclave || len(d.PCRs) != r.pcrs || len(d.PCRs[0]) != 48 ||
				size(d.Nonce) != r.nonce || size(d.UserData) != r.userData || size(d.PublicKey) != r.publicKey {
				t.Errorf("read as %+v", d)
			}
			if err := v.trust(context.Background(), d, made, attest.NewBudget(5)); err != nil || len(d.Chain) != 5 {
				t.Errorf("at its time: %v", err)
			}
			if err := v.trust(context.Background(), d, today, attest.NewBudget(5)); !errors.Is(err, chain.CheckExpired) {
				t.Errorf("today: %v", err)
			}
			verified, err := v.Verify(context.Background(), data, made)
			if !r.enclave && (err != nil || verified.Identity() != d.Identity()) || r.enclave && !errors.Is(err, checkEnclave) {
				t.Errorf("verified: %v", err)
			}
			want := chain.CheckExpired
			if r.enclave {
				want = checkEnclave
			}
			if _, err := v.Verify(context.Background(), data, today); !errors.Is(err, want) {
				t.Errorf("verified today: %v, want %s", err, want)
			}
			leaf := d.leaf
			for at, want := range map[time.Time]refusal.Check{leaf.NotBefore.Add(-maxSkew - time.Second): chain.CheckNotYetValid, leaf.NotAfter: "", leaf.NotAfter.Add(time.Second): chain.CheckExpired} {
				if r.enclave {
					continue
				}
				if _, err := v.Verify(context.Background(), data, at); want == "" && err != nil || want != "" && !errors.Is(err, want) {
					t.Errorf("at %s: %v, want %q", at, err, want)
				}
			}
		})
	}
}

func size(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

// Each bit of a recorded document counts: changed anywhere it is refused.
func TestRecordedBits(t *testing.T) {
	v := recordedVerifier(t)
	data := readFile(t, "tpm-reclaim.cose")
	made := time.Date(2026, 6, 18, 5, 10, 49, 0, time.UTC)
	for n := 0; n < len(data); n += 11 { // every bit would be 40,000 signatures
		changed := append([]byte(nil), data...)
		changed[n] ^= 1 << (n % 8)
		if _, err := v.Verify(context.Background(), changed, made); err == nil {
			t.Errorf("byte %d changed: taken", n)
		}
	}
}
