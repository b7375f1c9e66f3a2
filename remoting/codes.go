package remoting

// Request codes (RequestCode).
const (
	CodeSendMessage            = 10
	CodePullMessage            = 11
	CodeQueryMessage           = 12
	CodeQueryConsumerOffset    = 14
	CodeUpdateConsumerOffset   = 15
	CodeUpdateTopic            = 17
	CodeGetAllTopicConfig      = 21
	CodeGetBrokerRuntimeInfo   = 28
	CodeSearchOffsetByTime     = 29
	CodeGetMaxOffset           = 30
	CodeGetMinOffset           = 31
	CodeGetEarliestStoreTime   = 32
	CodeViewMessageByID        = 33
	CodeHeartbeat              = 34
	CodeUnregisterClient       = 35
	CodeConsumerSendBack       = 36
	CodeEndTransaction         = 37
	CodeGetConsumerList        = 38
	CodeNotifyConsumersChanged = 40
	CodeLockBatch              = 41
	CodeUnlockBatch            = 42
	CodeGetAllConsumerOffset   = 43
	CodeGetAllDelayOffset      = 45
	CodeCheckClientConfig      = 46
	CodeGetTimerCheckpoint     = 60
	CodeGetTimerMetrics        = 61
	CodePutKVConfig            = 100
	CodeGetKVConfig            = 101
	CodeDeleteKVConfig         = 102
	CodeRegisterBroker         = 103
	CodeUnregisterBroker       = 104
	CodeGetRouteInfo           = 105
	CodeGetClusterInfo         = 106
	CodeUpdateGroup            = 200
	CodeGetAllGroups           = 201
	CodeGetTopicStats          = 202
	CodeGetConsumerConnections = 203
	CodeGetAllTopicsFromNames  = 206
	CodeDeleteGroup            = 207
	CodeGetConsumeStats        = 208
	CodeDeleteTopic            = 215
	CodeDeleteTopicInNames     = 216
	CodeGetKVList              = 219
	CodeResetClientOffset      = 220
	CodeInvokeResetOffset      = 222
	CodeGetTopicsByCluster     = 224
	CodeQueryTopicConsumers    = 300
	CodeSendMessageV2          = 310
	CodeSendBatch              = 320
	CodeGetTopicConfig         = 351
	CodeLitePullMessage        = 361
	CodeGetAllRequestModes     = 402
	CodeBrokerHeartbeat        = 904
	CodeGetHAStatus            = 907
)

// Response codes (ResponseCode, RemotingSysResponseCode).
const (
	Success                 = 0
	SystemError             = 1
	SystemBusy              = 2
	RequestCodeNotSupported = 3
	FlushDiskTimeout        = 10
	SlaveNotAvailable       = 11
	FlushSlaveTimeout       = 12
	MessageIllegal          = 13
	ServiceNotAvailable     = 14
	NoPermission            = 16
	TopicNotExist           = 17
	PullNotFound            = 19
	PullRetryImmediately    = 20
	PullOffsetMoved         = 21
	QueryNotFound           = 22
	SubscriptionNotExist    = 24
	GroupNotExist           = 26
	InvalidParameter        = 29
	ConsumerNotOnline       = 206
	GoAway                  = 1500
)
