package claims

import (
	"strconv"
	"unicode/utf8"
)

// Marshal encodes the claims as kube-apiserver 1.36 encodes them, byte for byte: members
// in the order of their names, absent ones left out, "aud" always an array, and strings
// with the escapes of Go's encoding/json before 1.22: \u003c, \u003e and \u0026 for the
// characters of HTML, \u0008 and \u000c, \u2028 and \u2029. Bytes that are no UTF-8
// become U+FFFD, as they do there. A claim set longer than [MaxClaimsSize] is
// [CheckSize].
func (c *Claims) Marshal() ([]byte, error) {
	e := encoder{b: make([]byte, 0, c.sizeHint())}
	e.open()
	if len(c.Audiences) > 0 {
		e.name("aud")
		e.strings(c.Audiences)
	}
	e.date("exp", c.Expiry)
	e.date("iat", c.IssuedAt)
	e.text("iss", c.Issuer)
	e.text("jti", c.ID)
	if c.Legacy == nil || c.Kubernetes != (Private{}) {
		e.private(&c.Kubernetes)
	}
	if c.Legacy != nil {
		e.legacy(c.Legacy)
	}
	e.date("nbf", c.NotBefore)
	e.text("sub", c.Subject)
	e.close()
	if len(e.b) > MaxClaimsSize {
		return nil, &Error{Check: CheckSize, Got: strconv.Itoa(len(e.b)) + " bytes", Want: "at most " + strconv.Itoa(MaxClaimsSize)}
	}
	return e.b, nil
}

// sizeHint is about how long the encoding gets, so that one allocation does.
func (c *Claims) sizeHint() int {
	n := 256 + len(c.Issuer) + len(c.Subject) + len(c.ID)
	for _, a := range c.Audiences {
		n += len(a) + 3
	}
	k := &c.Kubernetes
	n += len(k.Namespace) + k.ServiceAccount.sizeHint() + k.Pod.sizeHint() + k.Secret.sizeHint() + k.Node.sizeHint()
	if l := c.Legacy; l != nil {
		n += 256 + len(l.Namespace) + len(l.SecretName) + len(l.ServiceAccountName) + len(l.ServiceAccountUID)
	}
	return n
}

func (r *Ref) sizeHint() int {
	if r == nil {
		return 0
	}
	return 32 + len(r.Name) + len(r.UID)
}

// An encoder appends the members of an object that is open.
type encoder struct {
	b []byte
}

func (e *encoder) open()  { e.b = append(e.b, '{') }
func (e *encoder) close() { e.b = append(e.b, '}') }

// name writes a member's name, which needs no escapes, with what stands around it.
func (e *encoder) name(name string) {
	if e.b[len(e.b)-1] != '{' {
		e.b = append(e.b, ',')
	}
	e.b = append(e.b, '"')
	e.b = append(e.b, name...)
	e.b = append(e.b, '"', ':')
}

func (e *encoder) text(name, value string) {
	if value != "" {
		e.name(name)
		e.b = appendString(e.b, value)
	}
}

func (e *encoder) date(name string, d NumericDate) {
	if d.Present {
		e.name(name)
		e.b = strconv.AppendInt(e.b, d.Unix, 10)
	}
}

func (e *encoder) strings(list []string) {
	e.b = append(e.b, '[')
	for i, s := range list {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.b = appendString(e.b, s)
	}
	e.b = append(e.b, ']')
}

func (e *encoder) private(p *Private) {
	e.name("kubernetes.io")
	e.open()
	e.text("namespace", p.Namespace)
	e.ref("node", p.Node)
	e.ref("pod", p.Pod)
	e.ref("secret", p.Secret)
	e.ref("serviceaccount", &p.ServiceAccount)
	e.date("warnafter", p.WarnAfter)
	e.close()
}

func (e *encoder) ref(name string, r *Ref) {
	if r == nil {
		return
	}
	e.name(name)
	e.open()
	e.text("name", r.Name)
	e.text("uid", r.UID)
	e.close()
}

// legacy writes all four claims, empty or not.
func (e *encoder) legacy(l *LegacyPrivate) {
	for _, m := range [...]struct{ name, value string }{
		{memberLegacyNamespace, l.Namespace},
		{memberLegacySecret, l.SecretName},
		{memberLegacyAccount, l.ServiceAccountName},
		{memberLegacyAccountUID, l.ServiceAccountUID},
	} {
		e.name(m.name)
		e.b = appendString(e.b, m.value)
	}
}

// appendString writes a JSON string. Runs that need no escape are copied whole.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\t':
				b = append(b, '\\', 't')
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			default:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, s[start:i]...)
			b = utf8.AppendRune(b, utf8.RuneError)
			start = i + size
		case r == '\u2028' || r == '\u2029':
			b = append(b, s[start:i]...)
			b = append(b, '\\', 'u', '2', '0', '2', hex[r&0xf])
			start = i + size
		}
		i += size
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
