package externalsigner

import (
	"bytes"
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// shortPublish is how long a key of these tests is published before it signs.
const shortPublish = time.Second

// A client asks a signer as kube-apiserver does, and keeps every token.
type client struct {
	externaljwtv1.ExternalJWTSignerClient
	t      *testing.T
	tokens []string
}

func (s *signer) client(t *testing.T) *client {
	t.Helper()
	conn, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{externaljwtv1.NewExternalJWTSignerClient(conn), t, nil}
}

// sign requests a token, and returns the ID of its key.
func (c *client) sign() (string, error) {
	now := time.Now()
	body := &claims.Claims{
		Issuer: controlplane.Issuer, Subject: claims.MakeSubject("shop", "cart"), Audiences: []string{controlplane.Issuer},
		IssuedAt: claims.NewNumericDate(now), NotBefore: claims.NewNumericDate(now), Expiry: claims.NewNumericDate(now.Add(time.Hour)),
		ID: "6cb5f9f5-9a5f-4f59-a5b4-1f1d3f5a0c11", Kubernetes: claims.Private{Namespace: "shop", ServiceAccount: claims.Ref{Name: "cart", UID: "1"}},
	}
	text, err := body.Marshal()
	if err != nil {
		c.t.Fatal(err)
	}
	segment := base64.RawURLEncoding.EncodeToString(text)
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	signed, err := c.Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: segment}, grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	token := signed.Header + "." + segment + "." + signed.Signature
	parsed, err := jws.Parse(token)
	if err != nil {
		return "", err
	}
	c.tokens = append(c.tokens, token)
	return parsed.KeyID(), nil
}

// wantKey requests a token that must have the key of that ID.
func (c *client) wantKey(keyID string) {
	c.t.Helper()
	if got, err := c.sign(); err != nil || got != keyID {
		c.t.Errorf("signed with %s, %v; want %s", got, err, keyID)
	}
}

// keys fetches the keys.
func (c *client) keys() map[string]*jws.Key {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	fetched, err := c.FetchKeys(ctx, &externaljwtv1.FetchKeysRequest{}, grpc.WaitForReady(true))
	if err != nil {
		c.t.Fatal(err)
	}
	keys := map[string]*jws.Key{}
	for _, k := range fetched.Keys {
		public, err := x509.ParsePKIXPublicKey(k.Key)
		if err != nil {
			c.t.Fatal(err)
		}
		if keys[k.KeyId], err = jws.NewKey(public, jws.KeyOptions{KeyID: k.KeyId}); err != nil {
			c.t.Fatal(err)
		}
	}
	return keys
}

// wantAccepted checks that every token verifies with the keys as they are now, and returns how many there are.
func (c *client) wantAccepted() int {
	c.t.Helper()
	keys := c.keys()
	for i, token := range c.tokens {
		parsed, err := jws.Parse(token)
		if err != nil {
			c.t.Fatal(err)
		}
		key := keys[parsed.KeyID()]
		if key == nil {
			c.t.Errorf("token %d of %d: its key %s is not published", i, len(c.tokens), parsed.KeyID())
		} else if err := key.Verify(parsed); err != nil {
			c.t.Errorf("token %d of %d: %v", i, len(c.tokens), err)
		}
	}
	return len(c.tokens)
}

// awaitKey waits until a key signs. Until then, only the old one does, or the signer asks to try again.
func (c *client) awaitKey(keyID, old string) {
	c.t.Helper()
	eventually(c.t, func() error {
		switch got, err := c.sign(); {
		case err != nil && status.Code(err) != codes.Unavailable || err == nil && got != keyID && got != old:
			c.t.Fatalf("signed with %s, %v", got, err)
			return nil
		case got != keyID:
			return fmt.Errorf("signed with %q, %w", got, err)
		}
		return nil
	})
}

// again connects to a signer that was started again, with the tokens that it signed before.
func (s *signer) again(t *testing.T, before *client) *client {
	t.Helper()
	s.ready(t, func() error { // the socket of a process that was killed is still there
		conn, err := net.Dial("unix", s.socket)
		if err == nil {
			conn.Close()
		}
		return err
	})
	c := s.client(t)
	c.tokens = before.tokens
	return c
}

func keyIDOf(t *testing.T, public crypto.PublicKey) string {
	t.Helper()
	k, err := jws.NewKey(public, jws.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return k.KeyID()
}

// reloadFields has the fields of a configuration whose state is in a folder of its own.
func reloadFields(t *testing.T, dir string) map[string]any {
	t.Helper()
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"keyFile": filepath.Join(dir, "key.pem"), "stateFile": filepath.Join(state, "state.json"), "publish": shortPublish.String()}
}

// awaitLog waits until the signer has logged a text.
func (s *signer) awaitLog(t *testing.T, text string) {
	t.Helper()
	eventually(t, func() error {
		written, err := os.ReadFile(s.log)
		if err == nil && !bytes.Contains(written, []byte(text)) {
			err = fmt.Errorf("the log lacks %q:\n%s", text, written)
		}
		return err
	})
}

// TestReload changes the files of a running external-jwt-signer, and kills it in the midst. No token that it signed
// is refused.
func TestReload(t *testing.T) {
	first, second := newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P384())
	old, next := keyIDOf(t, first.Public()), keyIDOf(t, second.Public())

	t.Run("a cut file", func(t *testing.T) {
		dir := signerFolder(t)
		fields := reloadFields(t, dir)
		key := filepath.Join(dir, "key.pem")
		writeKey(t, key, second)
		whole, err := os.ReadFile(key)
		if err != nil {
			t.Fatal(err)
		}
		writeKey(t, key, first)
		s := startSigner(t, dir, fields)
		c := s.client(t)
		c.wantKey(old)
		for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 2} {
			replaceFile(t, key, whole[:n])
			time.Sleep(3 * 100 * time.Millisecond) // reload
			c.wantKey(old)
		}
		s.awaitLog(t, "whole blocks")
		replaceFile(t, key, whole)
		c.awaitKey(next, old)
		c.wantAccepted()

		s.stop(t) // and a start with such a file: the keys are served, and tokens wait for a whole one
		replaceFile(t, key, whole[:len(whole)/2])
		s.launch(t)
		c = s.again(t, c)
		if got, err := c.sign(); status.Code(err) != codes.Unavailable {
			t.Errorf("signed with %q, %v", got, err)
		}
		c.wantAccepted()
		replaceFile(t, key, whole)
		c.awaitKey(next, "")
		t.Logf("%d tokens accepted", c.wantAccepted())
	})

	t.Run("keys in a TPM, and a restart in the midst", func(t *testing.T) {
		dir, device := signerFolder(t), newTPM(t)
		fields := reloadFields(t, dir)
		key := filepath.Join(dir, "key.pem")
		delete(fields, "keyFile")
		fields["publish"] = publish
		fields["tpm"] = map[string]any{"device": device.path, "keyFile": key}
		first := device.writeKey(t, key, tpmkey.ECDSAP256)
		oldFile, err := os.ReadFile(key)
		if err != nil {
			t.Fatal(err)
		}
		s := startSigner(t, dir, fields)
		c := s.client(t)
		c.wantKey(keyIDOf(t, first))
		staged := filepath.Join(dir, "next.pem")
		second := device.writeKey(t, staged, tpmkey.RSA2048)
		newFile, err := os.ReadFile(staged)
		if err != nil {
			t.Fatal(err)
		}
		replaceFile(t, key, append(newFile, oldFile...))
		s.awaitLog(t, "new key published")
		s.kill(t)
		s.launch(t)
		c = s.again(t, c)
		c.wantKey(keyIDOf(t, first)) // from the file of two keys
		c.awaitKey(keyIDOf(t, second), keyIDOf(t, first))
		t.Logf("%d tokens accepted", c.wantAccepted())
	})

	t.Run("another key under the same kid", func(t *testing.T) {
		dir := signerFolder(t)
		fields := reloadFields(t, dir)
		fields["keyID"] = "of-the-operator"
		writeKey(t, filepath.Join(dir, "key.pem"), first)
		s := startSigner(t, dir, fields)
		c := s.client(t)
		c.wantKey("of-the-operator")
		writeKey(t, filepath.Join(dir, "key.pem"), second)
		s.awaitLog(t, "another key with the key ID")
		time.Sleep(2 * shortPublish)
		c.wantKey("of-the-operator")
		t.Logf("%d tokens accepted", c.wantAccepted())
	})

	t.Run("an expired state", func(t *testing.T) {
		dir := signerFolder(t)
		fields := reloadFields(t, dir)
		path := fields["stateFile"].(string)
		writeKey(t, filepath.Join(dir, "key.pem"), first)
		s := startSigner(t, dir, fields)
		c := s.client(t)
		c.wantKey(old)
		writeKey(t, filepath.Join(dir, "key.pem"), second)
		c.awaitKey(next, old)
		c.wantAccepted()
		eventually(t, func() error {
			if text, _ := os.ReadFile(path); !bytes.Contains(text, []byte(`"until"`)) {
				return fmt.Errorf("the state has no key that ends:\n%s", text)
			}
			return nil
		})
		s.stop(t)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		replaceFile(t, path, regexp.MustCompile(`"until": "[0-9-]+T`).ReplaceAll(text, []byte(`"until": "2001-01-01T`)))
		s.launch(t)
		c = s.client(t)
		c.wantKey(next)
		if keys := c.keys(); len(keys) != 1 || keys[next] == nil {
			t.Errorf("%d keys", len(keys))
		}
		s.stop(t)
		replaceFile(t, path, bytes.Replace(text, []byte(`"version": 1`), []byte(`"version": 2`), 1))
		s.launch(t)
		<-s.done
		if code := s.cmd.ProcessState.ExitCode(); code != 1 || !bytes.Contains(controlplane.Tail(s.log), []byte("version 2")) {
			t.Errorf("a state of a later version: status %d", code)
		}
	})

	for _, tt := range []struct {
		name string
		keys []crypto.Signer
	}{
		{"killed, with both keys in the file", []crypto.Signer{second, first}},
		{"killed, with the new key in the file", []crypto.Signer{second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			events, tokens := 1, 0
			for ; ; events++ {
				n, ended := killedAt(t, events, first, tt.keys)
				if tokens += n; ended {
					break
				}
			}
			if events < 5 {
				t.Errorf("the state was written in %d steps", events)
			}
			t.Logf("killed at each of %d steps; %d tokens accepted", events-1, tokens)
		})
	}
}

// killedAt kills a signer at a step of writing its state in a rotation, and starts it again. It returns how many tokens
// it had signed, and whether the rotation has fewer steps.
func killedAt(t *testing.T, step int, first crypto.Signer, keys []crypto.Signer) (tokens int, ended bool) {
	dir := signerFolder(t)
	fields := reloadFields(t, dir)
	old, next := keyIDOf(t, first.Public()), keyIDOf(t, keys[0].Public())
	writeKey(t, filepath.Join(dir, "key.pem"), first)
	s := startSigner(t, dir, fields)
	c := s.client(t)
	c.wantKey(old)
	steps := watch(t, filepath.Join(dir, "state"))
	defer steps.Close()
	writeKey(t, filepath.Join(dir, "key.pem"), keys...)
	ended = !await(t, steps, step, shortPublish+time.Second)
	s.kill(t)

	s.launch(t)
	again := s.again(t, c)
	if ended { // the new key may have signed before
		again.awaitKey(next, old)
		return again.wantAccepted(), true
	}
	got, err := again.sign()
	if len(keys) == 2 && (err != nil || got != old && got != next) {
		t.Errorf("step %d: signed with %q, %v", step, got, err)
	}
	again.awaitKey(next, old)
	return again.wantAccepted(), false
}

// watch reports each step of writing a file in a folder (inotify(7)).
func watch(t *testing.T, dir string) *os.File {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "inotify")
}

// await waits for that many steps, and reports whether there were as many in time.
func await(t *testing.T, steps *os.File, want int, limit time.Duration) bool {
	t.Helper()
	if err := steps.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	for events := make([]byte, 64<<10); ; {
		n, err := steps.Read(events)
		if err != nil {
			return false
		}
		for at := 0; at < n; at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[at+12:])) {
			if want--; want == 0 {
				return true
			}
		}
	}
}
