package awsid

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// Certificates are the certificates that documents of /rsa2048 verify with, by region:
// "us-west-2". The caller supplies them: AWS publishes them, one for each region, in the EC2
// User Guide ("AWS public certificates for instance identity document signatures",
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/regions-certs.html; for China
// docs.amazonaws.cn). [ParseCertificates] makes a table of the certificates that this package knows; for
// a region newer than this package the caller adds the certificate. Certificates of the other
// two kinds of signature must not be in the table.
type Certificates map[string]*x509.Certificate

// maxPEMSize is the length in bytes of the longest text that [ParseCertificates] reads.
const maxPEMSize = 512 << 10

// checkCertificates: the text does not consist of PEM certificates, or some are not the ones that AWS
// signs /rsa2048 with, as far as this package knows them.
const checkCertificates refusal.Check = "awsid-certificates"

// ParseCertificates reads PEM certificates, in any order, and determines the region of each by
// its fingerprint, since all have the same names. Text between the blocks is ignored.
//
// The error has the check "awsid-certificates". Certificates that this package does not know are
// left out of the table, and the error names them by their number and the algorithm of their keys: a
// region newer than this package, or a certificate of another signature, which AWS' page has
// between the others. The table of known certificates is returned with that error, nil if it is
// empty. A text that is not PEM gives no table.
func ParseCertificates(text []byte) (Certificates, error) {
	if len(text) > maxPEMSize {
		return nil, checkCertificates.Refuse(strconv.Itoa(len(text))+" bytes", "at most "+strconv.Itoa(maxPEMSize))
	}
	regions := map[string]string{}
	for region, fingerprint := range fingerprints() {
		regions[fingerprint] = region
	}
	table, begun := Certificates{}, bytes.Count(text, []byte("-----BEGIN "))
	var unknown []string
	for n := 1; ; n++ {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			if n == 1 || n != begun+1 {
				return nil, checkCertificates.Refuse(strconv.Itoa(n-1)+" certificates", "at least one, and no block that is cut short")
			}
			return table.withUnknown(unknown)
		}
		if block.Type != "CERTIFICATE" {
			return nil, checkCertificates.Refuse("block "+strconv.Itoa(n)+" of type "+refusal.Quote(block.Type), "CERTIFICATE")
		}
		sum := sha256.Sum256(block.Bytes)
		region := regions[hex.EncodeToString(sum[:])]
		cert, err := x509.ParseCertificate(block.Bytes)
		if region == "" || err != nil {
			unknown = append(unknown, strconv.Itoa(n)+" ("+keyOf(cert)+")")
			continue
		}
		table[region] = cert
	}
}

// withUnknown returns the table, and an error that names the certificates that are not in it.
func (c Certificates) withUnknown(unknown []string) (Certificates, error) {
	const shown = 8
	if len(c) == 0 {
		c = nil
	}
	if len(unknown) == 0 {
		return c, nil
	}
	got := strings.Join(unknown[:min(len(unknown), shown)], ", ")
	if len(unknown) > shown {
		got += " and " + strconv.Itoa(len(unknown)-shown) + " more"
	}
	return c, checkCertificates.Refuse("certificate "+got, "those of /rsa2048, which have RSA-2048 keys: "+
		"take others out of the text, and add that of a region newer than this package to the table")
}

// keyOf is the algorithm of a certificate's key, such as RSA-1024.
func keyOf(cert *x509.Certificate) string {
	if cert == nil {
		return "unreadable"
	}
	if key, ok := cert.PublicKey.(*rsa.PublicKey); ok {
		return "RSA-" + strconv.Itoa(key.N.BitLen())
	}
	return cert.PublicKeyAlgorithm.String()
}

// fingerprints are the SHA-256 hashes of the certificates (DER) that AWS has published for
// /rsa2048, in lower-case hexadecimal, by region: 39, as of July 2026.
func fingerprints() map[string]string {
	return map[string]string{
		"af-south-1":     "215bab209298aaf8cf4c5deea56bd912abe845d6e9e33aa995e573f7579db5d7",
		"ap-east-1":      "75afac160d2f645889223451647251171df78925170ca324374ef7ea4542d9cc",
		"ap-east-2":      "fcfbff9e5ae6acbd30b784a463ccef3a114a4e6d1c2d89a81b9ccb1e8857bbdc",
		"ap-northeast-1": "b325c09f762291bfb8a149a3d8045eecda8152e79a7f4c83974a3703a2a7bb6d",
		"ap-northeast-2": "ec5c9ece34b9cac24109f4baa049f79ad71a1350b9bb0eee099bae13e951a8ae",
		"ap-northeast-3": "91069057ad654d162b614d67a57690c55cc7cdc470f8907fb34700998654d27a",
		"ap-south-1":     "db42efd744acc054f9009d3298e72e646dff7eb0c288392dd5e3028fe8e0c344",
		"ap-south-2":     "aa6f3e8afcd5e477501fbaf9d19f0945c7d94548f5a2de6375d8bfbab744cae0",
		"ap-southeast-1": "df7aad409dad94ffb0b45a677051291855c328945379ba05f4aa4983baa2b5b1",
		"ap-southeast-2": "3c2fa3fa70c80bc64e5e934b30e2d0af1733cfd32584f68f86804c43a934833d",
		"ap-southeast-3": "0bca692ad7956ac1317fc73f19ba247a7625d5852b744ada2c8c6f03b8cb29a4",
		"ap-southeast-4": "5347b6c5dc90111073e85a2eebd4392d3c277b0e243a05e0dddd740e69b4aefc",
		"ap-southeast-5": "4f0b294cf80ca024c06f9ff2ec0721abeed07b28fec90b5ffdc996c23fdc0f9a",
		"ap-southeast-6": "4302161545ec95270a90897702f8da0a7d949028d4da6bcf3f6dcfffeb57af87",
		"ap-southeast-7": "dbb89bd7e296d584a016304fe4287a74c97fbf67334a90df3be6e29dcc31afcd",
		"ca-central-1":   "69be70bcd56ff0650110630fbd71e970d23e9ae59394fd72767c8b319db09b4b",
		"ca-west-1":      "6a49730931cefb717811f49ecf5a37115923c9871722490e9d7d6871c6bcba7c",
		"cn-north-1":     "d3fa6cd2046e8ddd7a07305a684f82657442c68d31aedc13dc874ddae4400cf1",
		"cn-northwest-1": "58ae74d878479669fb3fb2336f4ec7f934a6e54865a83f696ad99d2a31dcda62",
		"eu-central-1":   "40e59f0c3924d32f53b9f66145fc18c4dfa1192dec7c74ad84d719826e9c7ba1",
		"eu-central-2":   "3598ff0a81680124bc848e853fdff1384ce2b05744f597edaa026b85477a605d",
		"eu-north-1":     "3a81e8168287011b59f1246bdc632d017711779940d06549a56388b691d1c31f",
		"eu-south-1":     "9fae1c2aa470cad03c814ea3cb06ddc2d0322d108b498431ab68b8297463bbc7",
		"eu-south-2":     "4dcc441f0cd06251b319a75d5fc405abd601ef86c1ad81bcc8e34f83035685a9",
		"eu-west-1":      "7963eae83b58ab14bbd0715947015dd6866d7623df85eca742cabb8898281f30",
		"eu-west-2":      "05e9c1ed5db46627c702fca74bd0c3bbee6ff57057f6df250d626d08bd0a3652",
		"eu-west-3":      "ca43ba8d6bf1d7f35b6be653f218609f131f1aaa16f66951e5d6a73348591353",
		"eusc-de-east-1": "3c80306f964b9fa633e6df99e5ecb6c347db118cf6d39076a6da786436e35ce2",
		"il-central-1":   "22792795853d820ed2a9b8657f086fc498dd538fbf03f6cc7a4707379af06402",
		"me-central-1":   "417830b0cc193b11c58b2bd71773656486fa436c1e9df7785098785f406581d1",
		"me-south-1":     "9ae8dda9e5209804f0dc3f06a17a6147b075eb364ab2067525ec09021128c9b0",
		"mx-central-1":   "cfd0f2560cb99f9e0257b095bdea262cdd5313d1add1c7e1e4531c3f4ba609ac",
		"sa-east-1":      "940ffcb9b2e5d1ef928c8832d804ff50a54eb231b19c683f9010225231ae6481",
		"us-east-1":      "70923c22dd074172d0e5d27ea1ca865412525fccd8bc2cd0ff40660e275f0b30",
		"us-east-2":      "dee29d569f783135c8eb61ac9b0d4a744ca7ba83808eb6eff7945f7fbfec4e41",
		"us-gov-east-1":  "a5e8286c6cfd2ab64d7ba5d2afe1b9fdb4c111941edc389c68c55c1ff69299c4",
		"us-gov-west-1":  "bf80d05c8bc1b7167f12d2f292bd084391f323c1d7887d1eafe9dee34b65519d",
		"us-west-1":      "abdc625e6600af52d4d3b88415bc092843e2d268f7136e62ebc2d9de94ae8232",
		"us-west-2":      "4e3569f2925a867a0c2f1b64efe101d4b4853d11c4f81c1e72aae201a92020b4",
	}
}
