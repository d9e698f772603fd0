package netdev

// Numbers of include/uapi/linux/netdev.h, which golang.org/x/sys lacks.
const (
	familyName    = "netdev"
	familyVersion = 1
)

const (
	cmdDevGet   = 1
	cmdQueueGet = 10
	cmdNAPIGet  = 11
	cmdNAPISet  = 14
)

const (
	attrDevIfindex     = 1
	attrDevXDPFeatures = 3
)

const (
	attrQueueID      = 1
	attrQueueIfindex = 2
	attrQueueType    = 3
	attrQueueNAPIID  = 4
)

const (
	attrNAPIIfindex           = 1
	attrNAPIID                = 2
	attrNAPIIRQ               = 3
	attrNAPIPID               = 4
	attrNAPIDeferHardIRQs     = 5
	attrNAPIGROFlushTimeout   = 6
	attrNAPIIRQSuspendTimeout = 7
	attrNAPIThreaded          = 8
)

// napiAttrName returns the name in the specification, empty for attributes
// that this package does not know.
func napiAttrName(attr uint16) string {
	switch attr {
	case attrNAPIIfindex:
		return "ifindex"
	case attrNAPIID:
		return "id"
	case attrNAPIIRQ:
		return "irq"
	case attrNAPIPID:
		return "pid"
	case attrNAPIDeferHardIRQs:
		return AttrDeferHardIRQs
	case attrNAPIGROFlushTimeout:
		return AttrGROFlushTimeout
	case attrNAPIIRQSuspendTimeout:
		return AttrIRQSuspendTimeout
	case attrNAPIThreaded:
		return "threaded"
	default:
		return ""
	}
}

func queueAttrName(attr uint16) string {
	switch attr {
	case attrQueueID:
		return "id"
	case attrQueueIfindex:
		return "ifindex"
	case attrQueueType:
		return "type"
	case attrQueueNAPIID:
		return "napi-id"
	default:
		return ""
	}
}

func devAttrName(attr uint16) string {
	switch attr {
	case attrDevIfindex:
		return "ifindex"
	case attrDevXDPFeatures:
		return "xdp-features"
	default:
		return ""
	}
}

// The names of the attributes that napi-set takes, as in the netdev family's
// specification.
const (
	AttrDeferHardIRQs     = "defer-hard-irqs"
	AttrGROFlushTimeout   = "gro-flush-timeout"
	AttrIRQSuspendTimeout = "irq-suspend-timeout"
)
