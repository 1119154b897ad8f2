package jws

import (
	"strings"

	"github.com/nodeattest/nodeattest/internal/strictjson"
)

// MaxDiscoverySize is the length in bytes of the longest OpenID Connect discovery
// document that is read.
const MaxDiscoverySize = 64 << 10

// discoveryURL is where an issuer's document is (OpenID Connect Discovery 1.0, section
// 4.1).
func discoveryURL(issuer string) string {
	return strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
}

// parseDiscovery returns the jwks_uri of an issuer's document, which must lead to one of
// the hosts. The document must name the
// very issuer, byte for byte (section 4.3): else one issuer could give out its keys as
// those of another.
func parseDiscovery(data []byte, issuer string, allowed hosts) (keySet string, err error) {
	var named string
	r := strictjson.NewReader(data)
	err = r.Object(func(name []byte) (err error) {
		switch string(name) {
		case "issuer":
			named, err = r.String()
		case "jwks_uri":
			keySet, err = r.String()
		default:
			err = r.Skip()
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return "", refuse(CheckDiscovery, err)
	}
	if named != issuer {
		return "", &Error{Check: CheckIssuer, Got: named, Want: issuer}
	}
	if err := allowed.check(CheckDiscovery, "jwks_uri", keySet); err != nil {
		return "", err
	}
	return keySet, nil
}
