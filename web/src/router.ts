import { createRouter, createWebHistory } from 'vue-router'
import ComparePicksView from './compare/compare-picks-view.vue'
import CompareView from './compare/compare-view.vue'
import NotFoundView from './page/not-found-view.vue'
import RunView from './run/run-view.vue'
import ToolCallView from './run/tool-call-view.vue'
import RunListView from './runs/run-list-view.vue'
import SignInView from './sign-in/sign-in-view.vue'
import ToolsView from './tools/tools-view.vue'

export const router = createRouter({
  history: createWebHistory(),
  routes: [
    { path: '/', name: 'runs', component: RunListView },
    { path: '/runs/:rootPlanId', name: 'run', component: RunView, props: true },
    { path: '/sign-in', name: 'signIn', component: SignInView },
    { path: '/tools', name: 'tools', component: ToolsView },
    { path: '/compare/:left', name: 'comparePicks', component: ComparePicksView, props: true },
    { path: '/compare/:left/:right', name: 'compare', component: CompareView, props: true },
    {
      path: '/tool-calls/:toolCallId',
      name: 'toolCall',
      component: ToolCallView,
      props: true,
    },
    { path: '/:path(.*)*', name: 'notFound', component: NotFoundView, props: { what: 'page' } },
  ],
})
