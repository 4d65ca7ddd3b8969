import { createRouter, createWebHistory, type LocationQuery } from 'vue-router'
import NotFoundView from './page/not-found-view.vue'

/** The parameters of the overview. */
const OF_OVERVIEW = new Set(['last', 'from', 'to', 'service', 'environment', 'agent', 'model'])

const isOfList = (query: LocationQuery) => Object.keys(query).some((name) => !OF_OVERVIEW.has(name))

// A page's code is loaded when it is opened.
export const router = createRouter({
  history: createWebHistory(),
  routes: [
    {
      path: '/',
      name: 'overview',
      component: () => import('./overview/overview-view.vue'),
      // The list was here: its links still lead to it.
      beforeEnter: ({ query }) => (isOfList(query) ? { name: 'runs', query } : true),
    },
    { path: '/runs', name: 'runs', component: () => import('./runs/run-list-view.vue') },
    {
      path: '/runs/:rootPlanId',
      name: 'run',
      component: () => import('./run/run-view.vue'),
      props: true,
    },
    { path: '/sign-in', name: 'signIn', component: () => import('./sign-in/sign-in-view.vue') },
    {
      path: '/sessions',
      name: 'conversations',
      component: () => import('./conversations/conversation-list-view.vue'),
    },
    {
      path: '/sessions/:sessionId+',
      name: 'conversation',
      component: () => import('./conversations/conversation-view.vue'),
      // An id may contain slashes.
      props: ({ params }) => ({ sessionId: [params.sessionId].flat().join('/') }),
    },
    { path: '/go/:id', component: () => import('./run/go-view.vue'), props: true },
    { path: '/tools', name: 'tools', component: () => import('./tools/tools-view.vue') },
    { path: '/keys', name: 'keys', component: () => import('./keys/keys-view.vue') },
    {
      path: '/compare/:left',
      name: 'comparePicks',
      component: () => import('./compare/compare-picks-view.vue'),
      props: true,
    },
    {
      path: '/compare/:left/:right',
      name: 'compare',
      component: () => import('./compare/compare-view.vue'),
      props: true,
    },
    {
      path: '/plans/:id',
      component: () => import('./run/record-view.vue'),
      props: ({ params }) => ({ what: 'plan', id: params.id }),
    },
    {
      path: '/tool-calls/:id',
      name: 'toolCall',
      component: () => import('./run/record-view.vue'),
      props: ({ params }) => ({ what: 'toolCall', id: params.id }),
    },
    { path: '/:path(.*)*', name: 'notFound', component: NotFoundView, props: { what: 'page' } },
  ],
})
