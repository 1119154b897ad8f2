package externalsigner

import (
	"crypto"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/externalsigner/extsignertest"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The tokens that a rotation is under, at the least: before it, after it and in all.
const (
	tokensBefore = 200
	tokensAfter  = 200
	tokensInAll  = 1000
)

// TestSigner has kube-apiserver sign pods' tokens at external-jwt-signer, with a key in a file and one in a TPM,
// while the key is replaced by one of another algorithm.
func TestSigner(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		dir := signerFolder(t)
		key := filepath.Join(dir, "key.pem")
		writeKey(t, key, newECDSA(t, elliptic.P256()))
		s := startSigner(t, dir, map[string]any{"keyFile": key})
		s.rotate(t, func() { writeKey(t, key, newRSA(t)) })
	})
	t.Run("TPM", func(t *testing.T) {
		t.Parallel()
		dir, device := signerFolder(t), newTPM(t)
		key := filepath.Join(dir, "key.pem")
		device.openssl(t, key)
		s := startSigner(t, dir, map[string]any{"tpm": map[string]any{"device": device.path, "keyFile": key}})
		s.rotate(t, func() { device.writeKey(t, key, tpmkey.RSA2048) })
	})
}

// rotate replaces the key of a signer, ES256, by one for RS256, while tokens are requested and reviewed.
func (s *signer) rotate(t *testing.T, replace func()) {
	t.Helper()
	server := startCluster(t, s.socket)
	pod := server.makePod(t)
	l := startLoad(t, pod, 4, server)
	l.await(t, tokensBefore, jws.ES256)
	replace()
	l.await(t, tokensAfter, jws.RS256)
	l.await(t, tokensInAll)
	l.end(t)
	s.sameCounts(t, server, l.count())

	set := server.keys(t)
	keys, err := set.Keys(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	algorithms := map[jws.Algorithm]bool{}
	for _, key := range keys {
		algorithms[key.Algorithm()] = true
	}
	if len(keys) != 2 || !algorithms[jws.ES256] || !algorithms[jws.RS256] {
		t.Errorf("/openid/v1/jwks has %d keys for %v, want one for each of ES256 and RS256", len(keys), algorithms)
	}
	v := server.validators(t, set)
	for algorithm, tokens := range l.tokens {
		for _, token := range []string{tokens[0], tokens[len(tokens)/2], tokens[len(tokens)-1]} {
			if err := errors.Join(v.validate(t.Context(), token), server.review(t.Context(), token)); err != nil {
				t.Errorf("%s after the rotation: %v", algorithm, err)
			}
			changed := token[:len(token)-2] + "AA"
			if changed != token && (v.validate(t.Context(), changed) == nil || server.review(t.Context(), changed) == nil) {
				t.Errorf("%s: a changed signature is accepted", algorithm)
			}
		}
	}
	server.capped(t, pod)
	t.Run("attacks", func(t *testing.T) { extsignertest.Run(t, controlplane.Issuer, s.dial) })
}

// sameCounts compares the tokens that the signer and the API server have counted, at least so many.
func (s *signer) sameCounts(t *testing.T, server *apiServer, least int) {
	t.Helper()
	signed := metric(t, s.metrics(t), `nodeattest_external_signer_calls_total{method="Sign",code="OK"}`)
	asked := metric(t, server.metrics(t), `apiserver_externaljwt_sign_request_total{code="OK"}`)
	t.Logf("the signer counts %d signatures, kube-apiserver %d", signed, asked)
	if signed != asked || signed < least {
		t.Errorf("want the same counts, at least %d", least)
	}
}

// capped requests a token for a day: it lives as long as the signer's metadata allow, an hour and 7 seconds.
func (s *apiServer) capped(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	seconds := int64(86400)
	made, err := s.admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &seconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := jws.Parse(made.Status.Token)
	if err != nil {
		t.Fatal(err)
	}
	c, err := claims.Parse(token.UnverifiedPayload())
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Expiry.Unix - c.IssuedAt.Unix; got != 3607 {
		t.Errorf("a token that was requested for a day lives for %d s, want 3607", got)
	}
}

// keys are the keys that an API server publishes.
func (s *apiServer) keys(t *testing.T) *jws.StaticKeySet {
	t.Helper()
	served, err := s.admin.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	published, err := jws.ParseJWKS(served)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := jws.NewStaticKeySet(published...)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// simulator is a TPM that a signer and a test use in turn.
type simulator struct {
	*tpmsim.TPM
	path string // of its socket
}

func newTPM(t *testing.T) *simulator {
	t.Helper()
	device := tpmsim.Swtpm(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}})
	return &simulator{device, strings.TrimPrefix(device.TCTI(), "swtpm:path=")}
}

// writeKey makes a key in the TPM, replaces its file, and returns its public key.
func (s *simulator) writeKey(t *testing.T, path string, algorithm tpmkey.Algorithm) crypto.PublicKey {
	t.Helper()
	key, err := tpmkey.Create(t.Context(), s, algorithm, tpmkey.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer key.Close()
	text, err := key.File().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	replaceFile(t, path, text)
	return key.Public()
}

// openssl makes a key in the TPM by the commands of docs/external-signer.md.
func (s *simulator) openssl(t *testing.T, path string) {
	t.Helper()
	block := readPage(t, "external-signer.md").take(t, "sh", keyInTPM)
	script := strings.NewReplacer("/etc/external-jwt-signer/key.tss", path, "chown external-jwt-signer ", "chown root ").Replace(block)
	cmd := exec.CommandContext(t.Context(), "bash", "-ec", script+"\ntpm2_flushcontext -t; tpm2_flushcontext -s") // there is no resource manager
	cmd.Env = append(os.Environ(), "TPM2TOOLS_TCTI="+s.TCTI(), "TPM2OPENSSL_TCTI="+s.TCTI())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// TestPeers: three API servers of one cluster, each with a signer of its own, whose key is in a TPM of its own.
// Two signers have each other's key in their folder of peers. The third signer's key is in no folder: its tokens
// are refused elsewhere, until an administrator adds the key to the folder of one.
func TestPeers(t *testing.T) {
	t.Parallel()
	var (
		signers [3]*signer
		publics [3]crypto.PublicKey
		folders [3]string
		servers [3]*apiServer
	)
	for i := range signers {
		dir, device := signerFolder(t), newTPM(t)
		key, peers := filepath.Join(dir, "key.pem"), filepath.Join(dir, "peers")
		if err := os.Mkdir(peers, 0o700); err != nil {
			t.Fatal(err)
		}
		publics[i], folders[i] = device.writeKey(t, key, tpmkey.ECDSAP256), peers
		signers[i] = startSigner(t, dir, map[string]any{"tpm": map[string]any{"device": device.path, "keyFile": key}, "peersFolder": peers})
	}
	share := func(of, with int) {
		der, err := x509.MarshalPKIXPublicKey(publics[of])
		if err != nil {
			t.Fatal(err)
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
		replaceFile(t, filepath.Join(folders[with], fmt.Sprintf("signer-%d.pem", of)), text)
	}
	share(0, 1)
	share(1, 0)
	servers[0] = startCluster(t, signers[0].socket)
	for i := range servers[1:] {
		servers[i+1] = servers[0].cluster.startServer(t, signers[i+1].socket)
	}
	pod := servers[0].makePod(t)

	l := startLoad(t, pod, 2, servers[0], servers[1])
	l.await(t, tokensBefore)
	l.end(t)

	refused := func(server *apiServer, token string) {
		t.Helper()
		if err := server.review(t.Context(), token); err == nil || !strings.Contains(err.Error(), "TokenReview refuses") {
			t.Errorf("a token of the third signer: %v, want a refusal", err)
		} else {
			t.Log(err)
		}
	}
	refused(servers[0], servers[2].token(t, pod))
	refused(servers[1], servers[2].token(t, pod))
	refused(servers[2], servers[0].token(t, pod))

	share(2, 0)
	eventually(t, func() error { return servers[0].review(t.Context(), servers[2].token(t, pod)) })
	refused(servers[1], servers[2].token(t, pod))
	if keys, err := servers[0].keys(t).Keys(t.Context(), ""); err != nil || len(keys) < 2 {
		t.Errorf("the first server publishes %d keys, %v, want the others' too", len(keys), err)
	}
}
