package ec2

import (
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// checkRegion: this package does not know the endpoint of the document's region.
const checkRegion refusal.Check = "ec2-region"

// partition is a part of AWS with accounts of its own, and the regions in it whose instances have
// documents that awsid.ParseCertificates knows, as of July 2026.
type partition struct{ name, suffix, regions string }

func partitions() []partition {
	return []partition{
		{"aws", "amazonaws.com", "af-south-1 ap-east-1 ap-east-2 ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-south-1 ap-south-2 " +
			"ap-southeast-1 ap-southeast-2 ap-southeast-3 ap-southeast-4 ap-southeast-5 ap-southeast-6 ap-southeast-7 " +
			"ca-central-1 ca-west-1 eu-central-1 eu-central-2 eu-north-1 eu-south-1 eu-south-2 eu-west-1 eu-west-2 eu-west-3 " +
			"il-central-1 me-central-1 me-south-1 mx-central-1 sa-east-1 us-east-1 us-east-2 us-west-1 us-west-2"},
		{"aws-cn", "amazonaws.com.cn", "cn-north-1 cn-northwest-1"},
		{"aws-eusc", "amazonaws.eu", "eusc-de-east-1"},
		{"aws-us-gov", "amazonaws.com", "us-gov-east-1 us-gov-west-1"},
	}
}

// endpoint is where STS answers for a region.
type endpoint struct{ partition, region, host string }

// endpointOf finds a region in the table.
func endpointOf(region string) (*endpoint, error) {
	for _, p := range partitions() {
		if slices.Contains(strings.Fields(p.regions), region) {
			return &endpoint{p.name, region, "sts." + region + "." + p.suffix}, nil
		}
	}
	return nil, checkRegion.Refuse(refusal.Quote(region), "a region whose endpoint of STS is known")
}
